"""The class-data archive that speeds up the start of Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relay.analytics.spark import classes

SESSION = """
import sys
from pathlib import Path
from relay.analytics.spark import classes, session
from tests.support import frugal_spark
archive, folder, options = sys.argv[1:]
classes.path = lambda: Path(archive)
more = {**frugal_spark.INTERPRETED, "spark.driver.extraJavaOptions": options}
spark = session.open_session("local[1]", Path(folder), driver_memory="1g", settings=more)
print("sum", spark.range(5).groupBy().sum().collect()[0][0])
spark.stop()
"""


def _start(archive: Path, folder: Path) -> tuple[str, str]:
    """Start a session; return what it printed, and the log of where its classes came from."""
    log = folder / "classes.log"
    options = f"-Xlog:class+load:file={log}"
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(archive), str(folder / "cache"), options],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, log.read_text()


def _archived(loaded: str) -> list[str]:
    """Return the log lines of classes of Spark that came from an archive."""
    return [
        line
        for line in loaded.splitlines()
        if " org.apache.spark" in line and "shared objects file (top)" in line
    ]


def test_a_session_starts_with_the_classes_of_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "var" / "spark.jsa"
    classes.make(archive, jobs=())
    assert [each.name for each in archive.parent.iterdir()] == [archive.name]
    said, loaded = _start(archive, tmp_path)
    assert "sum 10" in said
    assert len(_archived(loaded)) > 1_000


def test_an_archive_that_does_not_fit_is_not_used(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    archive.write_bytes(b"of another Java" * 1_000)
    said, loaded = _start(archive, tmp_path)
    assert "sum 10" in said
    assert not _archived(loaded)


def test_without_an_archive_nothing_is_asked_of_java(tmp_path: Path) -> None:
    assert classes.options(tmp_path / "none.jsa") == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("a file")
    with pytest.raises(classes.ArchiveError, match=f"{tmp_path}/var: "):
        classes.make(tmp_path / "var" / "spark.jsa")


def test_what_goes_wrong_is_told_and_leaves_what_there_was(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    archive.write_bytes(b"before")
    with pytest.raises(classes.ArchiveError, match="nonsense"):
        classes.make(archive, jobs=["nonsense"])
    assert archive.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [archive]
