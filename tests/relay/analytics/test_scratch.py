"""Spark's scratch files are removed with their process, or by the next one."""

from __future__ import annotations

from pathlib import Path

from relay.analytics.scratch import Scratch


def test_a_folder_goes_with_its_process_or_the_next_one(tmp_path: Path) -> None:
    mine = Scratch(tmp_path)
    (mine.path / "blockmgr").mkdir()
    dead = tmp_path / "dead"
    (dead / "blockmgr").mkdir(parents=True)
    (dead / "lock").touch()
    before_locks = tmp_path / "blockmgr-1"
    before_locks.mkdir()
    other = Scratch(tmp_path)
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {mine.path, other.path}
    assert (mine.path / "blockmgr").exists()
    mine.close()
    assert not mine.path.exists() and other.path.exists()
    other.close()
