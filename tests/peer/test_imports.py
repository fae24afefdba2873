"""Imports of a gateway at its start: nothing large that most gateways never use."""

from __future__ import annotations

import subprocess
import sys

LARGE = ("redis", "opentelemetry", "requests", "substrateinterface", "scalecodec", "django")


def test_a_gateway_imports_nothing_large() -> None:
    code = (
        "import sys, peer.gateway.service\n"
        f"print(*(name for name in {LARGE} if name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
