"""How the processes of one relay notice each other's end: pipes, never polling.

Every child holds the reading end of its own *lifeline*, a pipe nobody ever writes to; only the
parent holds the other end. Whatever ends the parent, `kill -9` included, closes it, and the child
reads end-of-file. A child says "ready" the other way round: one line into a pipe of which the
parent holds the reading end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

from relay.server.output import say

READY_LINE = b"ready\n"


def watch_parent(lifeline_fd: int, *, grace_s: float) -> None:
    """End this process when the parent is gone: first as by SIGTERM, after `grace_s` at once.

    A thread waits for it, not the event loop: a blocked loop must not outlive its parent.
    """
    threading.Thread(
        target=_await_end, args=(lifeline_fd, grace_s), name="lifeline", daemon=True
    ).start()


def _await_end(lifeline_fd: int, grace_s: float) -> None:
    await_eof(lifeline_fd)
    say("the parent process is gone: stopping", sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os._exit(1)


def await_eof(fd: int) -> None:
    """Block until the other end of a pipe was closed by its last holder."""
    while os.read(fd, 1):
        pass


def tell_ready(ready_fd: int) -> None:
    """Tell the parent, once, that this process does its work now."""
    with contextlib.suppress(BrokenPipeError):
        os.write(ready_fd, READY_LINE)
    os.close(ready_fd)
