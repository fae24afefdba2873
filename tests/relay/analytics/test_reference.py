"""The reference of tables is up to date, and the docstrings it is made from define every column."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.analytics import reference
from relay.analytics.spark.catalogue import Table, tables
from relay.analytics.spark.jobs import twin_hour

DOCS = Path(__file__).parents[3] / "docs"


def test_the_reference_is_up_to_date() -> None:
    written = (DOCS / "reference" / "analytics.md").read_text()
    assert written == reference.render(), "make docs"


@pytest.mark.parametrize("table", list(tables()), ids=lambda table: table.name)
def test_each_column_is_defined_in_its_place(table: Table) -> None:
    defined: list[str] = []
    for name, meaning in reference.columns(table).items():
        assert len(meaning) > 2, name
        each = twin_hour.REASONS if name == "dropped_REASON" else (None,)
        defined += [name if reason is None else f"dropped_{reason}" for reason in each]
    module = table.load()
    assert defined == module.SCHEMA.names
    assert table.name == module.TABLE
    assert set(table.keys) <= set(module.SCHEMA.names)
