"""The process around the bundled Redis server of embedded mode.

The server itself cannot detect whether it is still needed, so this small process is its parent and
stops it when it is not. A pipe shows that: the supervisor and each of its children hold the writing
end, so end-of-file means that all of them are gone, whatever ended them. Workers that still flush
their removals after a kill -9 of the supervisor therefore find the server running. If this process
itself is killed, Linux ends the server (parent-death signal); on other systems the next start waits
for its lock. This process also makes the server rewrite its file (`relay.server.rewriting`), and
the disk begin to write what is appended (`relay.server.early_writes`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import hiredis

from relay.server.allocator import server_environment
from relay.server.early_writes import written_early
from relay.server.lifeline import await_eof, tell_ready
from relay.server.rewriting import connected, rewritten_when_due

PREDECESSOR_ENDS_S: Final = 10.0
STOP_S: Final = 10.0
KILLED: Final = 128
"""Base of the exit code 128 + n for a server ended by signal n, as in a shell."""

_POLL_S: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until SIGTERM or until no process uses it; return its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--users-fd", type=int, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    os.close(options.lifeline_fd)  # the users pipe shows the same, and more
    own_lock = _wait_for_predecessor(options.socket.with_suffix(".lock"))
    if own_lock is None:
        print("another server still uses the data folder", file=sys.stderr)
        return 1
    server = subprocess.Popen(
        options.command,
        env=server_environment(options.command[0]),
        pass_fds=(own_lock,),
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )
    os.close(own_lock)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    threading.Thread(target=_stop_when_unused, args=(server, options.users_fd), daemon=True).start()
    if _wait_until_it_answers(server, options.socket):
        tell_ready(options.ready_fd)
    with rewritten_when_due(options.socket, options.folder), written_early(options.folder):
        code = server.wait()
    return code if code >= 0 else KILLED - code


def _wait_for_predecessor(path: Path) -> int | None:
    """Take the lock that a server holds while it runs; None if the former server still has it.

    It ensures that two servers never write the same append-only file.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + PREDECESSOR_ENDS_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(lock)
                return None
            time.sleep(_POLL_S)
        else:
            return lock


def _stop_when_unused(server: subprocess.Popen[bytes], users_fd: int) -> None:
    await_eof(users_fd)
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(STOP_S)
        return
    server.kill()


def _wait_until_it_answers(server: subprocess.Popen[bytes], path: Path) -> bool:
    """Send PING until the server has read its files; return False if it ended instead."""
    while server.poll() is None:
        with contextlib.suppress(OSError, hiredis.HiredisError), connected(path) as ask:
            ask("PING")
            return True
        time.sleep(_POLL_S)
    return False


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
