"""Analytics modules in a worker's memory: few where it records, none where it does not."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys
import django
django.setup()
import relay.sessions.runtime
recorder = {"relay.analytics.recorder", "relay.analytics.journal", "relay.analytics.writer"}
print(*sorted(recorder & set(sys.modules)))
import relay.analytics.recorder, relay.analytics.recording, relay.analytics.drainer_events
large = ("pyarrow", "numpy", "pyspark", "duckdb", "relay.analytics.models", "relay.analytics.apps")
print(*(name for name in large if name in sys.modules))
"""


def test_a_worker_imports_what_it_needs() -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "rmbsite.settings",
        "RMB_ROLE": "worker",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "\n\n"
