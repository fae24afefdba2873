"""Files appear complete, or the old content stays."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from relay.ops import whole_file


def test_what_was_there_stays_until_the_end(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    file.write_text("precious")
    file.chmod(0o640)
    with whole_file.written_text(file) as text:
        text.write("a\r\nb\n")
        text.flush()
        assert file.read_text() == "precious"
    assert file.read_bytes() == b"a\r\nb\n" and file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["out.csv"]


@pytest.mark.parametrize("there", [True, False])
def test_a_failure_leaves_nothing(tmp_path: Path, there: bool) -> None:
    file = tmp_path / "out.csv"
    if there:
        file.write_text("precious")
    with pytest.raises(ValueError, match="gone"), whole_file.written_text(file) as text:
        text.write("half")
        raise ValueError("gone")
    assert os.listdir(tmp_path) == (["out.csv"] if there else [])
    assert not there or file.read_text() == "precious"


def test_a_new_file(tmp_path: Path) -> None:
    file = tmp_path / "out"
    with whole_file.written(file, new=True, mode=whole_file.PRIVATE) as content:
        content.write(b"first")
        assert not file.exists()
    assert file.read_bytes() == b"first" and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError), whole_file.written(file, new=True):
        raise AssertionError("it is there already")
    with pytest.raises(FileExistsError), whole_file.written(tmp_path / "late", new=True) as content:
        (tmp_path / "late").write_text("came meanwhile")
    assert (tmp_path / "late").read_text() == "came meanwhile"
    assert sorted(os.listdir(tmp_path)) == ["late", "out"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with whole_file.written(tmp_path / "link") as content:
        content.write(b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"x"


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with whole_file.written_text(pipe) as text:
        text.write("through")
    reader.join()
    assert read == ["through"] and pipe.is_fifo()


def test_nowhere_to_write(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "file"):
        with pytest.raises(OSError), whole_file.written(path):
            raise AssertionError("it is opened")
