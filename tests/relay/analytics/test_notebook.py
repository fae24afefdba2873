"""The notebook of the documentation, run cell by cell over a small history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relay.analytics import places
from relay.analytics.lake import Lake
from tests.relay.analytics import rows
from tests.relay.analytics.rows import FIRST, midnight

NOTEBOOK = Path(__file__).parents[3] / "docs" / "howto" / "analytics.ipynb"


@pytest.mark.django_db
def test_every_cell_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events = rows.ordinary(midnight(FIRST), messages=60)
    rows.write(tmp_path / "events", events)
    monkeypatch.setattr(places, "configured", lambda: places.Places(tmp_path))
    monkeypatch.setattr("django.setup", lambda: None)  # Django and logging are set up already
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "")  # restored after the test
    found: dict[str, Any] = {}
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "kept without its outputs"
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            exec(compile(source, f"{NOTEBOOK.name} {cell['id']}", "exec"), found)
    assert found["lake"] == Lake(tmp_path)
    accepted = sum(event.kind == "accepted" for event in events)
    assert int(found["days"]["accepted"].sum()) == accepted > 0
    assert len(found["messages"]) == 10
    assert "usage is not computed yet" in capsys.readouterr().out
