"""Importing the package loads no heavy libraries and no Django."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("substrateinterface", "scalecodec", "django", "celery", "aiohttp", "relay")


def test_looking_up_twins_imports_nothing_heavy() -> None:
    code = (
        "import sys, chain.rotation, chain.follower\n"
        "chain.rotation.Rotation(['ws://localhost']).close()\n"
        f"print(*(name for name in {HEAVY} if name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
