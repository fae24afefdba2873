"""A child for tests of the warm parent: ends with the exit code it is told, or waits."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Say the first argument and end with it; with another number of arguments wait."""
    if len(sys.argv) != 2:
        signal.pause()
    code = int(sys.argv[1])
    print(code)
    return code
