"""Analytics over the REST API."""

from __future__ import annotations

import pyarrow as pa
import pytest
from django.test import Client
from pyarrow import parquet

from relay.analytics.models import LiveMinute, RunState
from relay.analytics.results import MODEL_OF, columns
from tests.relay.rest.conftest import account, bearer, token_of
from tests.support.analytics_results import a_run, hour, publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

PATH = "/api/v1/analytics"


@pytest.fixture
def caller(site_redis: RedisServer) -> Client:
    return bearer(token_of(account("viewer", "viewer")))


@pytest.mark.parametrize("table", MODEL_OF)
def test_each_table_in_the_database_has_an_operation(caller: Client, table: str) -> None:
    answer = caller.get(f"{PATH}/results/{table.replace('_', '-')}?since=2026-11-01")
    if table == "usage":
        assert answer.status_code == 422, "months, not days"
        answer = caller.get(f"{PATH}/results/usage?since=2026-11&until=2026-12")
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"items": [], "next": None}


def test_rows_by_days_and_relays_page_by_page(caller: Client) -> None:
    for day in (1, 2, 3):
        publish(
            "federation_slo",
            f"2026-11-0{day}",
            [
                {
                    "hour": hour(day, number),
                    "remote": remote,
                    "attempts": 10 * day,
                    "ok": 10 * day - number,
                    "permille": 1000,
                    "p95_us": None,
                }
                for number in (0, 1)
                for remote in ("b.example", "c.example")
            ],
        )
    path = f"{PATH}/results/federation-slo"
    query = "since=2026-11-02&remote=b.example&order=attempts&limit=3"
    first = caller.get(f"{path}?{query}").json()
    second = caller.get(f"{path}?{query}&cursor={first['next']}").json()
    rows = first["items"] + second["items"]
    assert second["next"] is None
    assert [(row["period"], row["ok"]) for row in rows] == [
        ("2026-11-02", 20), ("2026-11-02", 19), ("2026-11-03", 30), ("2026-11-03", 29),
    ]  # fmt: skip
    assert list(rows[0]) == columns("federation_slo")
    assert rows[0]["hour"] == "2026-11-02T00:00:00Z" and rows[0]["p95_us"] is None
    budgets = caller.get(f"{PATH}/budgets?since=2026-11-01&until=2026-11-03").json()
    assert [(each["remote"], each["attempts"], each["failed"]) for each in budgets] == [
        ("b.example", 120, 3),
        ("c.example", 120, 3),
    ]
    assert budgets[0]["left"] == pytest.approx(1 - 3 / (120 * 0.005))


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("results/anomalies?since=x", "query.since"),
        ("results/anomalies?twin=-1", "query.twin"),
        ("results/anomalies?order=hour", "query.order"),
        ("results/storms?colour=red", "query.colour"),
        ("budgets?since=2026-11-03&until=2026-11-01", "query.until"),
        ("budgets?since=2020-11-03&until=2026-11-01", "query.until"),
        ("runs?state=lost", "query.state"),
    ],
)
def test_what_is_not_understood(caller: Client, path: str, field: str) -> None:
    answer = caller.get(f"{PATH}/{path}")
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["errors"]] == [field]


def test_tables_and_runs(caller: Client) -> None:
    publish("usage", "2026-11", job="usage")
    a_run("audit", state=RunState.FAILED, error="no Java")
    tables = {each["table"]: each for each in caller.get(f"{PATH}/tables").json()}
    assert tables["usage"]["last"] == "2026-11" and tables["usage"]["in_database"]
    assert tables["twin_hour"]["periods"] == 0 and not tables["twin_hour"]["in_database"]
    (run,) = caller.get(f"{PATH}/runs?state=failed").json()["items"]
    assert (run["job"], run["error"], run["first_day"]) == ("audit", "no Java", "2026-11-01")
    assert caller.get(f"{PATH}/runs?job=usage").json()["items"][0]["state"] == "done"


def test_minutes(caller: Client) -> None:
    facts = {"reason": "none", "remote": "", "size_bytes": 9, "latency_us": 7, "late": 0}
    for minute in (hour(3, 6), hour(3, 7)):
        for kind in ("accepted", "delivered"):
            LiveMinute.objects.create(minute=minute, relay="a.example", kind=kind, n=5, **facts)
    found = caller.get(f"{PATH}/minutes?since=2026-11-03T07:00:00Z&kind=delivered").json()["items"]
    assert [(row["minute"], row["kind"], row["n"]) for row in found] == [
        ("2026-11-03T07:00:00Z", "delivered", 5)
    ]
    assert len(caller.get(f"{PATH}/minutes?until=2026-11-03T07:00:00Z").json()["items"]) == 2
    assert caller.get(f"{PATH}/minutes?relay=b.example").json()["items"] == []


def test_usage_as_files(caller: Client) -> None:
    names = columns("usage")[2:]
    publish("usage", "2026-11", [{"twin": twin, **dict.fromkeys(names, twin)} for twin in (9, 7)])
    answer = caller.get(f"{PATH}/usage/csv?month=2026-11")
    assert answer.headers["Content-Type"] == "text/csv"
    assert answer.getvalue().decode().splitlines()[1:] == [
        "2026-11,7,7,7,7,7,7,7", "2026-11,9,9,9,9,9,9,9", "all,2,16,16,16,16,16,16",
    ]  # fmt: skip
    answer = caller.get(f"{PATH}/usage/parquet?month=2026-11")
    assert parquet.read_table(pa.BufferReader(answer.getvalue())).num_rows == 2
    assert caller.get(f"{PATH}/usage/csv?month=2026-12").status_code == 404
    for form in ("csv", "parquet"):
        for month in ("2026-13", "2026-00", "2026-1"):
            assert caller.get(f"{PATH}/usage/{form}?month={month}").status_code == 422
    for table, period in (("usage", "2026-13"), ("audit", "2026-11-32"), ("audit", "2026-00-01")):
        assert caller.get(f"{PATH}/results/{table}?since={period}").status_code == 422
