"""Bring the registry in line with a CSV file: `RELAY_TOKEN=... python sync_twins.py URL FILE`.

Twins of the file are added or changed. Twins that are not in the file are removed, unless they were
changed in the meantime. A relay whose twins come from the chain refuses all of this.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from relay_api import RelayApi

url, file = sys.argv[1], Path(sys.argv[2])
api = RelayApi(url, os.environ["RELAY_TOKEN"])
text = file.read_text()
wanted = {int(row["id"]) for row in csv.DictReader(text.splitlines())}
done = api.import_twins(text)
gone = [twin.id for twin in api.twins() if twin.id not in wanted]
for number in gone:
    api.delete_twin(number, etag=api.twin(number).etag)
print(f"{done['added']} added, {done['changed']} changed, {len(gone)} removed")
