"""Tests of what a worker of a run imports before it collects, and of garbage collection later."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import collecting

FOLDER = str(Path(__file__).parent)


def _config(worker: int | None, *arguments: str) -> Any:
    config = SimpleNamespace(args=list(arguments))
    if worker is not None:
        config.workerinput = {"workerid": f"gw{worker}", "workercount": 2}
    return config


def test_modules_are_those_of_the_tests_below_folders() -> None:
    names = collecting.modules([FOLDER, FOLDER])
    assert __name__ in names and len(names) == len(set(names))
    assert not collecting.modules([__file__, f"{__file__}::test_1", "/etc"])
    everything = collecting.modules([str(collecting.ROOT)])
    assert set(names) < set(everything)
    assert not [name for name in everything if name.startswith("tests.bench")]


def test_every_module_is_imported_by_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(collecting.importlib, "import_module", imported.append)
    for worker in (0, 1):
        collecting.import_share(_config(worker, FOLDER))
    assert sorted(imported) == collecting.modules([FOLDER])
    collecting.import_share(_config(None, FOLDER))
    assert len(imported) == len(collecting.modules([FOLDER]))


@pytest.mark.parametrize(
    "body", ["1 / 0", "import pytest; pytest.skip('not here', allow_module_level=True)"]
)
def test_what_a_module_raises_is_left_to_collecting(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_broken_one.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(collecting, "modules", lambda arguments: ["test_broken_one"])
    collecting.import_share(_config(0))
    assert "test_broken_one" not in sys.modules


def test_the_search_for_garbage_goes_on_without_what_there_is() -> None:
    with collecting.without_garbage():
        assert not gc.isenabled()
        kept: list[Any] = [[]]
    assert gc.isenabled()
    assert not any(each is kept for each in gc.get_objects())
