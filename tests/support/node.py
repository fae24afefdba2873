"""Node.js, for the JavaScript peers of `tests/interop/js`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def node() -> str:
    """The program: the machine's, or the one that `make peers` installed."""
    return shutil.which("node") or str(Path(sys.executable).with_name("node"))
