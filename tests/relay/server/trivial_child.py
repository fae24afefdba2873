"""A child for tests of the supervisor, which records events in a file.

Arguments after the pipes: the file, then what to do: `serve` until SIGTERM, `fail` before it is
ready, `silent` never becomes ready, `stubborn` ignores SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from relay.server.lifeline import tell_ready, watch_parent


def main() -> int:
    """Run as one child."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifeline-fd", type=int)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("file")
    parser.add_argument("act")
    parser.add_argument("name")
    options = parser.parse_args()

    def tell(what: str) -> None:
        with open(options.file, "a") as file:
            file.write(f"{options.name} {what} {os.getpid()}\n")

    # The child waits for the signal instead of handling it: a handler that sets an event which the
    # main thread is about to wait for may find the event's lock held by that same thread.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    watch_parent(options.lifeline_fd, grace_s=0.2)
    if options.act == "fail":
        tell("failed")
        return 7
    tell("started")
    if options.act != "silent":
        tell_ready(options.ready_fd)
    signal.sigwait([signal.SIGTERM])
    while options.act == "stubborn":
        signal.pause()
    tell("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
