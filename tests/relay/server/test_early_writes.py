"""Early write-out to the disk of what a server appends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.server import early_writes
from relay.server.early_writes import LEAST_BYTES, PAGE_BYTES, EarlyWrites, written_early
from tests.support.redis_servers import start_valkey
from tests.support.waiting import wait_until

Advice = tuple[str, int, int]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Advice]:
    """Record file, offset and length in bytes of each advice, and pass the advice on."""
    given: list[Advice] = []
    advise = os.posix_fadvise

    def note(descriptor: int, start: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        given.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, start, length))
        advise(descriptor, start, length, advice)

    monkeypatch.setattr(early_writes.os, "posix_fadvise", note)
    return given


@pytest.fixture
def writes(tmp_path: Path) -> Iterator[EarlyWrites]:
    writes = EarlyWrites(tmp_path)
    yield writes
    writes.close()


def append(path: Path, count: int) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(bytes(count))


def test_whole_pages_and_each_once(tmp_path: Path, writes: EarlyWrites, told: list[Advice]) -> None:
    path = tmp_path / "appendonlydir" / "1.incr.aof"
    append(path, LEAST_BYTES + 10)
    assert writes.begin()
    assert not writes.begin()
    append(path, LEAST_BYTES + PAGE_BYTES)
    assert writes.begin()
    assert told == [
        ("1.incr.aof", 0, LEAST_BYTES),
        ("1.incr.aof", LEAST_BYTES, LEAST_BYTES + PAGE_BYTES),
    ]


def test_little_is_left_for_later(tmp_path: Path, writes: EarlyWrites, told: list[Advice]) -> None:
    append(tmp_path / "1.aof", LEAST_BYTES - 1)
    assert not writes.begin()
    assert told == []
    append(tmp_path / "1.aof", 1)
    assert writes.begin()


def test_the_newest_file_is_followed(
    tmp_path: Path, writes: EarlyWrites, told: list[Advice]
) -> None:
    """The newest appended file is followed, but neither a rewrite's file nor the finished base."""
    for number, name in enumerate(["1.incr.aof", "2.incr.aof", "2.base.rdb", "temp-rewrite.aof"]):
        append(tmp_path / name, LEAST_BYTES)
        os.utime(tmp_path / name, (number, number))
        writes.begin()
    assert told == [("1.incr.aof", 0, LEAST_BYTES), ("2.incr.aof", 0, LEAST_BYTES)]


def test_nothing_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert not EarlyWrites(tmp_path / "none").begin()


def test_links_are_not_followed(tmp_path: Path, told: list[Advice]) -> None:
    append(tmp_path / "elsewhere", LEAST_BYTES)
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "1.aof").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        EarlyWrites(folder).begin()
    assert told == []


def test_a_server_that_appends(tmp_path: Path, told: list[Advice]) -> None:
    server = start_valkey(tmp_path, append_fsync="everysec")
    try:
        with written_early(tmp_path):
            server.run("SET", "a", bytes(2 * LEAST_BYTES))
            wait_until(lambda: told)
            (current,) = {name for name, _, _ in told}
            server.run("BGREWRITEAOF")
            server.run("SET", "a", bytes(2 * LEAST_BYTES))
            wait_until(lambda: {name for name, _, _ in told} > {current})
    finally:
        server.remove()


def test_a_file_system_that_takes_no_advice_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(*arguments: int) -> None:
        asked.append(arguments)
        raise OSError("not supported")

    monkeypatch.setattr(early_writes.os, "posix_fadvise", refuse)
    monkeypatch.setattr(early_writes, "IDLE_S", 0.01)
    append(tmp_path / "1.aof", LEAST_BYTES)
    with written_early(tmp_path):
        wait_until(lambda: len(asked) > 1)
