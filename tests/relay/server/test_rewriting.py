"""When the bundled server rewrites its file, with a real server and small bounds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiredis
import psutil
import pytest

from relay.server import left_files, rewriting
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.waiting import wait_until

MIB = 1 << 20
LEAST_BYTES = 4 * MIB
TIMEOUT_S = 20.0


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setattr(rewriting, "LEAST_BYTES", LEAST_BYTES)
    monkeypatch.setattr(rewriting, "LOOK_S", 0.01)
    server = start_valkey(tmp_path, *rewriting.OPTIONS, append_fsync="everysec")
    try:
        with rewriting.rewritten_when_due(Path(server.socket_path), tmp_path):
            yield server
    finally:
        server.remove()


def persistence(server: RedisServer) -> dict[str, Any]:
    with server.client() as client:
        return dict(client.info("persistence"))


def rewrites(server: RedisServer) -> int:
    return int(persistence(server)["aof_rewrites"])


def file_bytes(server: RedisServer) -> int:
    return int(persistence(server)["aof_current_size"])


def pass_through(server: RedisServer, size_bytes: int) -> None:
    """Write `size_bytes` bytes, of which one MiB remains."""
    for _ in range(size_bytes // MIB):
        server.run("SET", "passing", b"x" * MIB)


def looks(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("commandstats")["cmdstat_info"]["calls"])


def look_some_times(server: RedisServer) -> None:
    before = looks(server)
    wait_until(lambda: looks(server) > before + 20, TIMEOUT_S)


@pytest.mark.parametrize(
    ("file_mib", "memory_mib", "due"),
    [
        (0, 0, False),
        (255, 1, False),
        (256, 1, True),
        (256, 128, True),
        (256, 129, False),
        (3_999, 2_000, False),
        (4_000, 2_000, True),
    ],
)
def test_a_file_is_compared_with_what_is_in_memory(
    file_mib: int, memory_mib: int, due: bool
) -> None:
    assert rewriting.is_due(file_mib * MIB, memory_mib * MIB) is due


def test_what_has_passed_leaves_the_file(server: RedisServer) -> None:
    pass_through(server, 3 * LEAST_BYTES)
    wait_until(lambda: rewrites(server) > 0 and file_bytes(server) < 2 * LEAST_BYTES, TIMEOUT_S)


def test_what_a_rewrite_leaves_is_not_freed_by_the_server(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay frees the old file: the server would wait for the disk."""
    freed: list[int] = []
    shrink = os.ftruncate

    def note(descriptor: int, size_bytes: int) -> None:
        freed.append(os.fstat(descriptor).st_size - size_bytes)
        shrink(descriptor, size_bytes)

    monkeypatch.setattr(left_files.os, "ftruncate", note)
    pass_through(server, 3 * LEAST_BYTES)
    wait_until(lambda: sum(freed) >= LEAST_BYTES, TIMEOUT_S)


def test_what_is_queued_is_not_written_again(server: RedisServer) -> None:
    for number in range(3 * LEAST_BYTES // MIB):
        server.run("SET", f"queued:{number}", b"x" * MIB)
    look_some_times(server)
    assert file_bytes(server) > 3 * LEAST_BYTES
    assert rewrites(server) == 0
    pass_through(server, 5 * LEAST_BYTES)  # now most of the file is obsolete
    wait_until(lambda: rewrites(server) > 0, TIMEOUT_S)


def test_it_goes_on_when_the_server_comes_back(server: RedisServer) -> None:
    server.kill()
    server.restart()
    pass_through(server, 2 * LEAST_BYTES)
    wait_until(lambda: rewrites(server) > 0, TIMEOUT_S)


def test_one_that_fails_is_tried_again_after_a_while(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "FAILED_S", 0.5)
    server.run("CONFIG", "SET", "rdb-key-save-delay", 60_000_000)  # microseconds
    pass_through(server, 2 * LEAST_BYTES)
    began = [kill_rewrite(server) for _ in range(3)]
    assert began[2] - began[1] > 0.4
    server.run("CONFIG", "SET", "rdb-key-save-delay", 0)
    wait_until(lambda: persistence(server)["aof_last_bgrewrite_status"] == "ok", TIMEOUT_S)


def kill_rewrite(server: RedisServer) -> float:
    """Wait for a rewrite to begin and kill it; return when it was found."""
    (child,) = wait_until(psutil.Process(server.pid).children, TIMEOUT_S)
    began = time.monotonic()
    child.kill()
    wait_until(lambda: not child.is_running(), TIMEOUT_S)
    return began


def test_one_that_cannot_begin_is_tried_again_after_a_while() -> None:
    """A failed start is followed by a pause, since each attempt begins another file.

    Without memory for a child process, there would be 7,000 an hour.
    """
    asked = []

    def ask(question: str) -> str:
        asked.append(question)
        if question == "BGREWRITEAOF":
            raise hiredis.ReplyError("ERR Can't execute an AOF background rewriting")
        return "aof_rewrite_in_progress:0\r\naof_current_size:1000000000\r\nused_memory:1\r\n"

    assert rewriting._look(ask, lambda: None) == rewriting.FAILED_S
    assert asked[-1] == "BGREWRITEAOF"
