"""When the bundled server rewrites its append-only file.

What passes through is written to the file and stays there until the file is rewritten, which takes
a core for a second for each GiB that is queued. The server's own rule compares the file with its
size after the last rewrite, which counts what came while that was made, and rewrites all that is
queued again each time a growing queue has doubled. Here the file is compared with what is in
memory, which is what a rewrite leaves of it: where all of the file is still queued there is none.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import hiredis

from redispipe import resp
from relay.server.beside import working_beside
from relay.server.left_files import LeftFiles
from relay.server.output import say

OPTIONS: Final = ("--auto-aof-rewrite-percentage", "0")
"""The server itself never begins one."""

LEAST_BYTES: Final = 256 << 20
"""Messages of 16 KiB make the server's own bound, 64 MiB, several times a second, and each rewrite
stops it while it waits for the disk. A file that grows for long stops it for longer: it writes
nothing while the disk syncs, and then all of it in one piece, 400 ms at the worst. With 256 MiB a
tenth more gets through than with 1 GiB, and the longest wait is a third."""

MEMORIES: Final = 2
"""A file of so many times what is in memory is rewritten."""

LOOK_S: Final = 0.25
FAILED_S: Final = 60.0
"""Wait after a rewrite that failed: each try begins another file."""

ANSWER_S: Final = 10.0
RECEIVE_BYTES: Final = 65_536

Ask = Callable[[str], str]
"""One command of words without blanks; the answer."""


@contextlib.contextmanager
def rewritten_when_due(path: Path, folder: Path) -> Iterator[None]:
    """Within it a thread looks at a server's file again and again.

    Args:
        path: the server's Unix socket; nobody need listen.
        folder: where its files are.
    """
    with working_beside("rewriting", partial(_keep_looking, path, LeftFiles(folder))):
        yield


def is_due(file_bytes: int, memory_bytes: int) -> bool:
    """Whether a file is to be rewritten."""
    return file_bytes >= max(LEAST_BYTES, MEMORIES * memory_bytes)


def _keep_looking(path: Path, left: LeftFiles, stop: threading.Event) -> None:
    wait_s = LOOK_S
    while not stop.wait(wait_s):
        wait_s = LOOK_S
        with contextlib.suppress(OSError, hiredis.HiredisError), connected(path) as ask:
            while not stop.wait(wait_s):
                left.free(stop.wait)
                wait_s = _look(ask, left.hold)
    left.close()


def _look(ask: Ask, hold: Callable[[], None]) -> float:
    """Begin a rewrite if it is time for one; returns the seconds until the next look."""
    state = resp.info(ask("INFO persistence")) | resp.info(ask("INFO memory"))
    under_way = state["aof_rewrite_in_progress"] == "1"
    if under_way or not is_due(int(state.get("aof_current_size", 0)), int(state["used_memory"])):
        return LOOK_S
    hold()
    try:
        ask("BGREWRITEAOF")
    except hiredis.ReplyError as error:  # no memory for one more process, say
        say(f"the append-only file is not rewritten: {error}", sys.stderr)
        return FAILED_S
    return LOOK_S if state["aof_last_bgrewrite_status"] == "ok" else FAILED_S


@contextlib.contextmanager
def connected(path: Path) -> Iterator[Ask]:
    """Asks one question after the other on a connection of its own.

    Not by the library for clients, which would be two thirds of the memory of this process.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(ANSWER_S)
        server.connect(str(path))
        reader = hiredis.Reader(encoding="utf-8")

        def ask(question: str) -> str:
            server.sendall(f"{question}\r\n".encode())
            while (answer := reader.gets()) is False:
                received = server.recv(RECEIVE_BYTES)
                if not received:
                    raise ConnectionError("the server has gone")
                reader.feed(received)
            if isinstance(answer, hiredis.ReplyError):
                raise answer
            return str(answer)

        yield ask
