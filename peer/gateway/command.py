"""The entry point of `rmb-peer`; nothing is imported before Ctrl-C may come."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from peer import interrupts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the gateway, or what else the options say; returns the exit code."""
    with interrupts.quiet():
        from peer.gateway.actions import run
    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
