"""The models of results: one for each table in the database, with the columns of its job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from django.db import transaction
from django.db.models import BigIntegerField, CharField, DateTimeField
from pyspark.sql import types

from relay.analytics import results
from relay.analytics.models import FederationSlo, Storm
from relay.analytics.spark import catalogue
from tests.support.analytics_results import hour, publish
from tests.support.in_database import in_database
from tests.support.postgres_server import PostgresServer

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


@pytest.mark.django_db
def test_rows_of_a_period_take_the_place_of_those_before() -> None:
    def budget(number: int, p95_us: int | None) -> dict[str, Any]:
        facts = {"attempts": number, "ok": 1, "permille": 1, "p95_us": p95_us}
        return {"period": "2026-11-03", "hour": hour(3, number), "remote": "b.example", **facts}

    publish("federation_slo", "2026-11-02", [{**budget(9, 1), "period": "2026-11-02"}])
    for batches in ([[budget(1, 5)], [budget(2, None), budget(3, 2**62)]], [[budget(4, 7)]]):
        results.replace("federation_slo", "2026-11-03", batches)
        found = FederationSlo.objects.filter(period="2026-11-03").order_by("pk")
        made = [row for rows in batches for row in rows]
        assert list(found.values(*results.columns("federation_slo"))) == made
    assert FederationSlo.objects.count() == 2
    results.replace("federation_slo", "2026-11-03", [])
    assert FederationSlo.objects.get().period == "2026-11-02"


def test_names_with_nul_go_into_postgresql(
    postgres: PostgresServer, tmp_path: Path, django_db_blocker: Any
) -> None:
    """PostgreSQL stores names with NUL characters, which clients can choose as session ids."""
    url = postgres.make_migrated_database("results")
    storm = {"twin": 7, "session": "nul\0and\N{SNOWMAN}", "first_us": 1, "last_us": 2, "opens": 5}
    with django_db_blocker.unblock(), in_database(url, tmp_path), transaction.atomic():
        row = {"period": "2026-11-03", "protocol": "rmb", **storm}
        results.replace("storms", "2026-11-03", [[row]])
        assert Storm.objects.get().session == "nul\ufffdand\N{SNOWMAN}"
