"""The models of results: one for each table in the database, with the columns of its job."""

from __future__ import annotations

from typing import Final

import pytest
from django.db.models import BigIntegerField, CharField, DateTimeField
from pyspark.sql import types

from relay.analytics import results
from relay.analytics.spark import catalogue

KINDS: Final = {
    types.LongType: BigIntegerField,
    types.StringType: CharField,
    types.TimestampType: DateTimeField,
}

TABLES = [each for each in catalogue.tables() if each.in_database]


def test_the_catalogue_and_the_models_agree() -> None:
    assert set(results.MODEL_OF) == {each.name for each in TABLES}
    for table in TABLES:
        assert set(table.keys) <= set(results.columns(table.name)), table.name


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_fields_are_the_columns_of_the_job(table: catalogue.Table) -> None:
    schema = table.load().SCHEMA
    assert schema.names == results.columns(table.name)
    for column in schema:
        field = results.MODEL_OF[table.name]._meta.get_field(column.name)
        assert isinstance(field, KINDS[type(column.dataType)]), column
