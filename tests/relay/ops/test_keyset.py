"""`relay.ops.keyset`: a list answers or refuses any cursor, whatever it contains."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from relay.access.errors import Invalid
from relay.ops import keyset, paging
from relay.twins.models import Twin
from tests.relay.rest.conftest import bearer, token_of
from tests.support.redis_servers import RedisServer

HALF = "\ud800"
"""Half of a surrogate pair: JSON can express it, no encoding can write it."""
FIRST = "0001-01-01T00:00:00+14:00"
LAST = "9999-12-31T23:59:59-14:00"

any_text = st.text(st.characters(exclude_categories=()), max_size=20)
times = st.builds(
    "{}-{:02}-{:02}T{:02}:59:59{}".format,
    st.sampled_from(("0001", "1969", "1970", "2026", "9998", "9999")),
    st.integers(1, 12), st.integers(1, 31), st.integers(0, 23),
    st.sampled_from(("", "Z", "+14:00", "-14:00", "+23:59")),
)  # fmt: skip
values = st.one_of(
    any_text,
    times,
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.none(),
    st.lists(st.integers(), max_size=2),
)


class TestForgedCursors(TestCase):
    """Forged cursors of lists ordered by a text, a time and a number."""

    @given(st.sampled_from(("username", "date_joined", "id")), values, values)
    @example("username", HALF, 1)
    @example("username", "\0", 1)
    @example("date_joined", FIRST, 1)
    @example("date_joined", LAST, 1)
    @example("date_joined", "2026-01-01", 1)
    @example("date_joined", "2026-01-01T00:00:00", 1)
    @example("date_joined", timezone.now().isoformat(), 2**63)
    def test_are_answered_or_refused(self, field: str, value: object, number: object) -> None:
        given = [number] if field == "id" else [value, number]
        try:
            keyset.page(
                User.objects.all(),
                {field: field},
                order=field,
                limit=5,
                cursor=paging.pack([field, *given]),
            )
        except Invalid as refused:
            assert "cursor" in refused.fields


@pytest.mark.django_db
def test_a_cursor_of_ours_is_taken() -> None:
    for name in ("a", "b\U0001f600", "c"):
        User.objects.create_user(name)
    for field in ("username", "date_joined", "id"):
        names, cursor = [], ""
        while True:
            found = keyset.page(
                User.objects.all(), {field: field}, order=field, limit=1, cursor=cursor
            )
            names += [each.username for each in found.items]
            cursor = found.next
            if not cursor:
                break
        assert names == ["a", "b\U0001f600", "c"], field


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "order", "place"),
    [
        ("accounts", "username", (HALF, 1)),
        ("relays", "domain", (HALF,)),
        ("tokens", "created", (FIRST, 1)),
        ("alarms", "since", (FIRST, 1)),
        ("twins", "updated", (LAST, 1)),
        ("sessions", "twin", (10**30, 1)),
        ("sessions", "twin", (7, 10**30)),
        ("sessions", "opened", (1e30, 1)),
        ("sessions", "opened", (float("nan"), 1)),
        ("workers", "sessions", (float("nan"), HALF)),
        ("queues", "messages", (1, HALF)),
        ("outbox/messages", None, (HALF, 1)),
        ("outbox/messages", None, ("1-1", 10**30)),
        ("dead-letters", None, (HALF,)),
    ],
)
def test_no_list_of_rest_falls_over_one(
    site_redis: RedisServer, path: str, order: str | None, place: tuple[object, ...]
) -> None:
    owner = User.objects.create_superuser("owner")
    Twin.objects.create(id=7, account=bytes(32))
    query = {"cursor": paging.pack([order, *place]), **({"order": order} if order else {})}
    answer = bearer(token_of(owner)).get(f"/api/v1/{path}", query)
    assert answer.status_code in (200, 400, 422), answer.content
