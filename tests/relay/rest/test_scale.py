"""Lists over large tables: each needs a few queries, however many rows there are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from relay.limits.models import TwinLimit
from relay.queues import keys
from relay.sessions.models import Session
from relay.twins.models import Twin
from tests.relay.rest.conftest import account, bearer, limit, token_of
from tests.relay.rest.test_openapi import OPERATIONS
from tests.support.redis_servers import RedisServer

TWINS = 50_000
SESSIONS = 20_000
MAX_QUERIES = 14
ROUNDS = 3
# A generous bound for busy machines; `pytest -s` prints `median_ms` of each list.
MAX_MEDIAN_S = 2.0

LISTS = [
    path
    for path, method, operation in OPERATIONS
    if method == "get" and operation["operationId"].startswith("list_") and "{" not in path
]
# Query strings of the lists that require one.
QUERIES = {
    "/api/v1/queues/headers": "?key=1",
    "/api/v1/analytics/budgets": "?since=2026-11-01&until=2026-11-30",
}


# Pages of the console, with an order or a filter that has to read many rows.
PAGES = [
    "/console/sessions/",
    "/console/sessions/?order=-messages_in",
    "/console/sessions/history/?reason=idle",
    "/console/queues/",
    "/console/twins/?order=-updated",
    "/console/twins/?state=banned",
    "/console/twins/?state=connected&order=-id",
    "/console/twins/?text=nowhere.example",
    "/console/twins/1/",
    "/console/limits/?text=nothing",
]
MAX_PAGE_QUERIES = 15


@pytest.fixture(scope="module")
def owner_of_many(django_db_setup: None, django_db_blocker: Any) -> Iterator[Client]:
    """Insert the rows and yield a client."""
    with django_db_blocker.unblock(), transaction.atomic():
        now = timezone.now()
        Twin.objects.bulk_create(
            [
                Twin(id=number, account=number.to_bytes(32, "big"), relays="a.example")
                for number in range(1, TWINS + 1)
            ],
            batch_size=5000,
        )
        Session.objects.bulk_create(
            [
                Session(
                    twin=number, epoch=number, worker="boot", opened_at=now - timedelta(0, number)
                )
                for number in range(1, SESSIONS + 1)
            ],
            batch_size=2000,
        )
        TwinLimit.objects.bulk_create(
            [TwinLimit(twin=number, count=1, size=1) for number in range(1, 5001)]
        )
        yield bearer(token_of(account("many", "owner")))
        transaction.set_rollback(True)


@pytest.fixture
def directory(site_redis: RedisServer, settings: Any) -> None:
    """Enter the sessions of the rows in the directory."""
    limit(settings, requests_per_minute=0)
    with site_redis.client() as client:
        entries = {str(number): f"{number} boot 1 192.0.2.1:5" for number in range(1, SESSIONS + 1)}
        client.hset(keys.SESSIONS, mapping=entries)


def test_every_list_is_a_few_queries(owner_of_many: Client, directory: None, db: None) -> None:
    addresses = [path + QUERIES.get(path, "") for path in LISTS]
    expect_fast(owner_of_many, addresses, MAX_QUERIES)


def test_every_page_is_a_few_queries(owner_of_many: Client, directory: None, db: None) -> None:
    user = User.objects.create_user("looks at many", is_staff=True)
    user.groups.add(Group.objects.get(name="owner"))
    client = Client()
    client.force_login(user)
    expect_fast(client, PAGES, MAX_PAGE_QUERIES)


def expect_fast(client: Client, addresses: list[str], max_queries: int) -> None:
    medians = {}
    for path in addresses:
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            with CaptureQueriesContext(connection) as queries:
                answer = client.get(path)
            times.append(time.perf_counter() - began)
            assert answer.status_code == 200, (path, answer.content)
            assert len(queries) <= max_queries, (path, len(queries))
        medians[path] = statistics.median(times)
    for path, median_s in sorted(medians.items(), key=lambda each: -each[1]):
        print(f"{median_s * 1000:8.1f} ms  {path}")
    assert max(medians.values()) < MAX_MEDIAN_S, medians


@pytest.mark.parametrize("path", ["/twins", "/sessions", "/sessions/history"])
def test_pages_bring_everything_once(
    path: str, owner_of_many: Client, directory: None, db: None
) -> None:
    cursor: str | None = ""
    seen: list[Any] = []
    for _ in range(6):
        given = f"&cursor={cursor}" if cursor else ""
        body = owner_of_many.get(f"/api/v1{path}?limit=500{given}").json()
        seen += [each.get("id", each.get("key")) for each in body["items"]]
        cursor = body["next"]
    assert len(seen) == len(set(seen)) == 3000 and cursor is not None
