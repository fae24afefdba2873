"""How the processes of one relay notice each other's end: pipes, never polling.

Every child holds the reading end of its own *lifeline*, a pipe that is never written to; only the
parent holds the other end. Whatever ends the parent, `kill -9` included, closes it, and the child
reads end-of-file. A child reports that it is ready in the other direction: one line into a pipe
whose reading end the parent holds.
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
    """End this process when the parent is gone: by SIGTERM, then at once after `grace_s` seconds.

    A thread waits for that, so that even a process with a blocked event loop ends.
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
    """Block until the last holder of a pipe's other end has closed it."""
    while os.read(fd, 1):
        pass


def tell_ready(ready_fd: int) -> None:
    """Notify the parent, once, that this process is ready."""
    with contextlib.suppress(BrokenPipeError):
        os.write(ready_fd, READY_LINE)
    os.close(ready_fd)
