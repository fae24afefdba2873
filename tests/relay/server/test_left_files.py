"""Files that a server has deleted are shrunk step by step; other files are not changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.server import left_files
from relay.server.left_files import STEP_BYTES, LeftFiles

SIZE_BYTES = 2 * STEP_BYTES + 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "appendonlydir").mkdir()
    for name in ("appendonly.aof.1.incr.aof", "appendonly.aof.1.base.rdb"):
        os.truncate(made(tmp_path / "appendonlydir" / name), SIZE_BYTES)
    return tmp_path


@pytest.fixture
def left(folder: Path) -> Iterator[LeftFiles]:
    left = LeftFiles(folder)
    yield left
    left.close()


def made(path: Path) -> Path:
    path.touch()
    return path


def held() -> list[int]:
    """Return the sizes of the append-only files that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the descriptor of the listing itself
            continue
        if "appendonly" in name:
            found.append(os.stat(f"/proc/self/fd/{descriptor}").st_size)
    return sorted(found)


def free(left: LeftFiles, steps: int = 100) -> list[list[int]]:
    """Free the files, and return the held sizes before each step."""
    seen: list[list[int]] = []

    def wait(seconds: float) -> bool:
        assert seconds == left_files.STEP_S
        seen.append(held())
        return len(seen) > steps

    left.free(wait)
    return seen


def test_what_was_left_gets_smaller_step_by_step(folder: Path, left: LeftFiles) -> None:
    left.hold()
    (folder / "appendonlydir" / "appendonly.aof.1.incr.aof").unlink()
    sizes = [SIZE_BYTES, SIZE_BYTES - STEP_BYTES, 1]
    assert free(left) == [sorted((size, SIZE_BYTES)) for size in sizes]
    assert held() == [SIZE_BYTES]


def test_what_still_has_a_name_is_not_touched(folder: Path, left: LeftFiles) -> None:
    left.hold()
    os.link(
        folder / "appendonlydir" / "appendonly.aof.1.incr.aof",
        folder / "somebody's backup",
    )
    (folder / "appendonlydir" / "appendonly.aof.1.incr.aof").unlink()
    assert free(left) == []
    assert (folder / "somebody's backup").stat().st_size == SIZE_BYTES
    assert (folder / "appendonlydir" / "appendonly.aof.1.base.rdb").stat().st_size == SIZE_BYTES


def test_a_file_is_held_once(left: LeftFiles) -> None:
    for _ in range(3):
        left.hold()
    assert held() == [SIZE_BYTES, SIZE_BYTES]


def test_without_time_the_rest_is_freed_in_one_piece(folder: Path, left: LeftFiles) -> None:
    left.hold()
    (folder / "appendonlydir" / "appendonly.aof.1.incr.aof").unlink()
    assert len(free(left, steps=1)) == 2
    assert held() == [SIZE_BYTES]


def test_the_disk_has_what_is_held(
    folder: Path, left: LeftFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        left_files.os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}"))
    )
    left.hold()
    assert sorted(synced) == sorted(map(str, (folder / "appendonlydir").iterdir()))


def test_nothing_is_held_in_the_end(folder: Path, left: LeftFiles) -> None:
    left.hold()
    left.close()
    assert held() == []
    assert (folder / "appendonlydir" / "appendonly.aof.1.incr.aof").stat().st_size == SIZE_BYTES


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "appendonly.aof").symlink_to(made(tmp_path / "appendonly elsewhere"))
    left = LeftFiles(folder)
    left.hold()
    assert held() == []


def test_a_folder_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    left = LeftFiles(tmp_path / "none")
    left.hold()
    assert free(left) == []
