"""Folders whose names Spark and DuckDB would interpret as patterns or escapes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from relay.analytics.plain_paths import is_plain, plain

NASTY = "da ta [ab]{c,d}?*#%20 ö=:\\"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_plain_folder_is_its_own(temporary: Path) -> None:
    assert plain(temporary / "lake-1.d") == temporary / "lake-1.d"
    assert list(temporary.iterdir()) == []


def test_others_get_a_link_that_stays_the_same(temporary: Path) -> None:
    folder, other = temporary / NASTY, temporary / "[a]"
    for each in (folder, other):
        each.mkdir()
        (each / "file").write_text(each.name)
    link = plain(folder)
    assert is_plain(link)
    assert (link / "file").read_text() == NASTY
    assert plain(folder) == link != plain(other)
    link.unlink()
    link.symlink_to(other)
    assert (plain(folder) / "file").read_text() == NASTY
    assert len(list(link.parent.iterdir())) == 2


def test_a_folder_of_links_that_others_can_write_to_is_refused(temporary: Path) -> None:
    links = plain(temporary / NASTY).parent
    links.chmod(0o770)
    with pytest.raises(PermissionError, match="only this user"):
        plain(temporary / NASTY)
