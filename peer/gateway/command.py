"""The entry point of `rmb-peer`; it imports nothing before Ctrl-C is handled."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from peer import interrupts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the gateway, or the action that the options select; return the exit code."""
    with interrupts.quiet():
        from peer.gateway.actions import run
    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
