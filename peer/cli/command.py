"""The entry point of `rmb`; it imports nothing before Ctrl-C is handled."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from peer import interrupts


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit code."""
    with interrupts.quiet():
        from peer.cli.verbs import run
    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
