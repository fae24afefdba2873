"""The history over REST."""

from __future__ import annotations

import time

import pytest
from django.test import Client

from relay.history import seconds
from relay.history.series import SERIES
from relay.ops.redis_client import client as redis
from tests.relay.rest.conftest import account, bearer, token_of
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller() -> Client:
    return bearer(token_of(account("viewer", "viewer")))


def test_series_and_their_history(caller: Client, site_redis: RedisServer) -> None:
    listed = caller.get("/api/v1/history/series").json()
    assert [each["key"] for each in listed] == [each.key for each in SERIES]
    assert {each["roll_up"] for each in listed} == {"mean", "max", "last"}
    seconds.put(redis(), int(time.time()) - 10, {"sessions": 7})
    found = caller.get("/api/v1/history?series=sessions,outbox&span=24h").json()
    assert found["span"] == "24h" and found["step_s"] == 60
    assert 7 in found["values"]["sessions"][-2:]
    assert len(found["times"]) == len(found["values"]["outbox"]) == 1440


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("series=nonsense", "query.series"),
        ("series=" + ",".join(["sessions"] * 51), "query.series"),
        ("", "query.series"),
        ("series=sessions&span=2h", "query.span"),
    ],
)
def test_what_is_not_known(caller: Client, query: str, field: str) -> None:
    answer = caller.get(f"/api/v1/history?{query}")
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["errors"]] == [field]


def test_redis_away(caller: Client, no_redis: None) -> None:
    answer = caller.get("/api/v1/history?series=sessions")
    assert answer.status_code == 503 and "Retry-After" in answer
