"""Ban the noisiest twins for an hour: `RELAY_TOKEN=... python ban_noisy.py URL MESSAGES`.

Every twin with a session that sent more than MESSAGES messages is banned, and its id is printed.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from relay_api import RelayApi

url, most = sys.argv[1], int(sys.argv[2])
api = RelayApi(url, os.environ["RELAY_TOKEN"])
until = datetime.now(UTC) + timedelta(hours=1)
banned: set[int] = set()
for session in api.sessions(protocol="rmb", order="-messages_in"):
    if session.messages_in <= most:
        break
    if session.twin is not None and session.twin not in banned:
        api.ban(session.twin, reason=f"{session.messages_in} messages", until=until)
        banned.add(session.twin)
        print(session.twin)
