"""Print alarms as they happen: `RELAY_TOKEN=... python watch_alarms.py https://relay.example`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from relay_api import RelayApi

api = RelayApi(sys.argv[1], os.environ["RELAY_TOKEN"])
for event in api.events("/alarms/events"):
    print(event.kind, event.data["rule"], event.data["subject"], flush=True)
