"""Relay workers do not import the packages that the REST API needs."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, django
django.setup()
import relay.server.worker_main, relay.sessions.app
wrong = [name for name in ("ninja", "pydantic", "allauth.account.views") if name in sys.modules]
wrong += [name for name in sys.modules if name.startswith("relay.") and name.endswith(".api")]
sys.exit(", ".join(wrong) or 0)
"""


def test_a_relay_worker_imports_no_ninja(tmp_path: object) -> None:
    environment = {"DJANGO_SETTINGS_MODULE": "rmbsite.settings", "RMB_DATA__DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
