"""A child for tests of the warm parent: it ends with the given exit code, or waits."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Print the only argument and exit with it; with any other number of arguments, wait."""
    if len(sys.argv) != 2:
        signal.pause()
    code = int(sys.argv[1])
    print(code)
    return code
