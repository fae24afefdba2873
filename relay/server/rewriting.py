"""Decides when the bundled server rewrites its append-only file.

Every message is written to the file and stays there until the file is rewritten, which takes a core
one second for each GiB that is queued. The server's own rule compares the file with its size after
the last rewrite, including what arrived meanwhile, and rewrites everything queued each time a
growing queue has doubled. This module compares the file with the memory in use, which is about what
a rewrite leaves: if everything in the file is still queued, it is not rewritten.
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
"""Options that keep the server from starting a rewrite by itself."""

LEAST_BYTES: Final = 256 << 20
"""Minimum size of a file that is rewritten. Messages of 16 KiB reach the server's own bound, 64
MiB, several times a second, and each rewrite stops the server while it waits for the disk. A
file that grows for long stops it for longer: the server writes nothing while the disk syncs,
then everything in one piece, 400 ms at worst. With 256 MiB, throughput is a tenth higher than
with 1 GiB, and the longest wait is a third."""

MEMORIES: Final = 2
"""A file is rewritten when it is so many times as large as the memory in use."""

LOOK_S: Final = 0.25
FAILED_S: Final = 60.0
"""Seconds to wait after a failed rewrite: each attempt begins another file."""

ANSWER_S: Final = 10.0
RECEIVE_BYTES: Final = 65_536

Ask = Callable[[str], str]
"""Sends one command of words without blanks, and returns the answer."""


@contextlib.contextmanager
def rewritten_when_due(path: Path, folder: Path) -> Iterator[None]:
    """Check a server's file regularly in a thread for the duration of the block.

    Args:
        path: Unix socket of the server, which need not listen yet.
        folder: Folder of the server's files.
    """
    with working_beside("rewriting", partial(_keep_looking, path, LeftFiles(folder))):
        yield


def is_due(file_bytes: int, memory_bytes: int) -> bool:
    """Check whether a file should be rewritten."""
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
    """Begin a rewrite if one is due; return the seconds until the next check."""
    state = resp.info(ask("INFO persistence")) | resp.info(ask("INFO memory"))
    under_way = state["aof_rewrite_in_progress"] == "1"
    if under_way or not is_due(int(state.get("aof_current_size", 0)), int(state["used_memory"])):
        return LOOK_S
    hold()
    try:
        ask("BGREWRITEAOF")
    except hiredis.ReplyError as error:  # such as no memory for another process
        say(f"the append-only file is not rewritten: {error}", sys.stderr)
        return FAILED_S
    return LOOK_S if state["aof_last_bgrewrite_status"] == "ok" else FAILED_S


@contextlib.contextmanager
def connected(path: Path) -> Iterator[Ask]:
    """Yield a function that sends commands one after another on a separate connection.

    It does without the client library, which would be two thirds of this process's memory.
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
