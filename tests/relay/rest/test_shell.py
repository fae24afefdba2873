"""Checks around every operation: authentication, rate limits, and the form of requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from relay.access.models import ApiToken
from tests.relay.rest.conftest import account, bearer, limit, token_of

pytestmark = pytest.mark.django_db

PROBLEM = "application/problem+json"
PATH = "/api/v1/sessions/history"


def refused(answer: Any, status: int) -> dict[str, Any]:
    """Check that an answer is a problem of this status, and return it."""
    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM), answer.content
    body: dict[str, Any] = answer.json()
    assert body["status"] == status and body["detail"] and body["title"]
    return body


def test_a_token_opens_what_its_role_may(viewer: Client) -> None:
    answer = viewer.get(PATH)
    assert (answer.status_code, answer.json()) == (200, {"items": [], "next": None})
    assert answer["Cache-Control"] == "no-store"


def test_without_a_token_nothing_is_told(site_redis: Any) -> None:
    answer = Client().get(PATH)
    refused(answer, 401)
    assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic Zm9v", "Bearer x", f"Bearer rmb_{'0' * 16}_{'A' * 43}"],
)
def test_a_wrong_token_is_refused(site_redis: Any, header: str) -> None:
    refused(Client(headers={"authorization": header}).get(PATH), 401)


def test_tokens_end(site_redis: Any) -> None:
    user = account("ops", "operator")
    refused(bearer(token_of(user, expires=timezone.now() - timedelta(seconds=1))).get(PATH), 401)
    text = token_of(user)
    assert bearer(text).get(PATH).status_code == 200
    User.objects.update(is_active=False)
    refused(bearer(text).get(PATH), 401)


def test_an_operator_who_is_signed_in_needs_no_token(site_redis: Any, client: Client) -> None:
    client.force_login(account("ops", "viewer"))
    assert client.get(PATH).status_code == 200
    client.force_login(User.objects.create_user("guest", is_staff=True))
    refused(client.get(PATH), 403)
    client.force_login(User.objects.create_user("nobody"))
    refused(client.get(PATH), 401)


def test_requests_are_limited_per_token(viewer: Client, operator: Client, settings: Any) -> None:
    limit(settings, requests_per_minute=2)
    assert [viewer.get(PATH).status_code for _ in range(3)] == [200, 200, 429]
    answer = viewer.get(PATH)
    refused(answer, 429)
    assert 1 <= int(answer["Retry-After"]) <= 60
    assert operator.get(PATH).status_code == 200


def test_an_address_that_guesses_is_turned_away_and_its_neighbours_are_not(
    viewer: Client, site_redis: Any, settings: Any
) -> None:
    limit(settings, failures_per_minute=2)
    wrong = bearer("rmb_wrong")
    assert [wrong.get(PATH).status_code for _ in range(3)] == [401, 401, 429]
    assert viewer.get(PATH).status_code == 200, "a proxy, or a program with an old token"
    other = Client(REMOTE_ADDR="192.0.2.7", headers={"authorization": "Bearer rmb_wrong"})
    refused(other.get(PATH), 401)


def test_who_has_one_address_of_ipv6_has_the_whole_network(site_redis: Any, settings: Any) -> None:
    limit(settings, failures_per_minute=2)
    found = [
        Client(REMOTE_ADDR=address, headers={"authorization": "Bearer rmb_wrong"}).get(PATH)
        for address in ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1")
    ]
    assert [answer.status_code for answer in found] == [401, 401, 429, 401]


def test_what_is_not_there_is_a_problem_too(viewer: Client) -> None:
    refused(viewer.get("/api/v1/nothing"), 404)
    refused(viewer.get("/api/v1/"), 404)
    refused(viewer.get(f"{PATH}/77"), 404)
    answer = viewer.delete(PATH)
    refused(answer, 405)
    assert answer["Allow"] == "GET, HEAD"


def test_head_is_get(viewer: Client) -> None:
    assert viewer.head(PATH).status_code == 200


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "query.limit"),
        ("limit=501", "query.limit"),
        ("limit=x", "query.limit"),
        ("order=secret", "query.order"),
        ("twin=0", "query.twin"),
        ("nonsense=1", "query.nonsense"),
        ("worker=%00", "query.worker"),
    ],
)
def test_a_wrong_query_names_its_field(viewer: Client, query: str, field: str) -> None:
    body = refused(viewer.get(f"{PATH}?{query}"), 422)
    assert [each["field"] for each in body["errors"]] == [field]
    assert body["errors"][0]["message"]


@pytest.mark.parametrize(
    "cursor",
    ["x", "WyJpZCIsMV0", "WyItb3BlbmVkX2F0Iiwic29vbiIsMV0", "e30", "W10", "%00", "W1tbW1s"],
)
def test_a_cursor_is_one_of_ours(viewer: Client, cursor: str) -> None:
    status = 422 if cursor == "%00" else 400
    body = refused(viewer.get(f"{PATH}?cursor={cursor}"), status)
    assert [each["field"] for each in body["errors"]] == ["query.cursor"]


def test_without_redis_reading_goes_on(no_redis: None) -> None:
    text = token_of(account("ops", "viewer"), role="viewer")
    assert bearer(text).get(PATH).status_code == 200


def test_the_secret_of_a_token_is_stored_nowhere(viewer: Client, site_redis: Any) -> None:
    text = token_of(account("ops", "viewer"))
    assert bearer(text).get(PATH).status_code == 200
    stored = [site_redis.run("GET", key) for key in site_redis.run("KEYS", "*")]
    assert text not in repr(stored) + repr(list(ApiToken.objects.values()))
