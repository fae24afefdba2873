"""Requests that no page of the console makes, but that clients and narrow groups may send.

Whatever is in an address or a message, a page answers it; it never causes a server error.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any, Final

import pytest
from django.contrib.auth.models import Permission, User
from django.db import DataError, connection
from django.test import Client
from django.utils import timezone
from hypothesis import example, given
from hypothesis import strategies as st

from relay.access import matrix
from relay.access.actor import SYSTEM
from relay.access.errors import Invalid
from relay.dashboard import admittance, figures
from relay.dashboard.tables import SHORT_LIMIT
from relay.dashboard.views import audit
from relay.ops import paging
from relay.sessions.models import Session
from relay.trace import services as traces
from relay.twins.models import Twin
from tests.relay.dashboard.conftest import SignIn
from tests.relay.queues.mail import fill, put, uids
from tests.support.envelopes import request
from tests.support.identities import twin as make_twin
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

DIGITS: Final = "9" * 5000
"""More digits than Python converts to a number."""
HALF: Final = "\ud800"
"""Half of a surrogate pair, which JSON can express and no encoder can write."""
TIME: Final = (
    r"([0-9]{1,6} ?(s|min|h|d))|(0001|1970|9998|9999)-(01|12)-(01|31)"
    r"([T ][0-2][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]{0,7})?)?(Z|[+-](00|14|23):?[0-5][0-9])?)?"
)
SECOND_FACTOR: Final = "/admin/account/second-factor/"
U64: Final = (1 << 64) - 1


def only(*actions: str) -> Client:
    """Return a client whose account may do these actions and nothing else."""
    user = User.objects.create_user("narrow", is_staff=True)
    for action in actions:
        app, _, codename = matrix.permission_of(action).partition(".")
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label=app, codename=codename)
        )
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"queues/?limit={DIGITS}", 200),
        (f"sessions/?twin={DIGITS}", 422),
        (f"sessions/7/kick/?epoch={DIGITS}", 422),
        ("settings/?order=zzz", 422),
        ("settings/?order=-", 422),
        ("audit/?since=999999+d", 422),
        ("audit/export/csv/?until=999999+d", 422),
        ("audit/?since=0001-01-01T00:00:00%2B14:00", 422),
        ("audit/?until=9999-12-31T23:59:59-14:00", 422),
        (f"access/?order=username&cursor={paging.pack(['username', HALF, 1])}", 422),
        (f"search/?q={DIGITS}", 200),
        ("traces/message/?uid=%0a", 200),
        ("traces/message/?uid=a%0ab", 200),
        ("twins/?relay=%00", 422),
        ("alarms/history/?subject=a%00", 422),
        ("audit/export/csv/?target=%00", 422),
        (f"limits/{DIGITS[:30]}/lift/", 404),
        (f"twins/{DIGITS[:30]}/kick/", 404),
    ],
)
def test_addresses(path: str, status: int, sign_in: SignIn, site_redis: RedisServer) -> None:
    assert sign_in("owner").get(f"/console/{path}").status_code == status


def as_postgresql(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    """Refuse what PostgreSQL refuses: NUL characters in parameters."""
    if not many and any(isinstance(each, str) and "\0" in each for each in params or ()):
        raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return execute(sql, params, many, context)


@pytest.mark.parametrize(
    "path",
    [
        "console/relays/a%00b/",
        "console/traces/%00/",
        "console/analytics/runs/%00/",
        "console/access/tokens/%00/revoke/",
        "api/v1/relays/a%00b",
        "api/v1/relays/%00/live",
    ],
)
def test_no_database_is_asked_for_nul(path: str, sign_in: SignIn, site_redis: RedisServer) -> None:
    owner = sign_in("owner")
    with connection.execute_wrapper(as_postgresql):
        answer = owner.get(f"/{path}")
    assert answer.status_code == 404
    assert path.startswith("api/") == (answer["Content-Type"] == "application/problem+json")


def test_no_session_has_nul_in_its_key(client: Client) -> None:
    client.cookies["rmb_operator"] = "abcdefgh\0"
    with connection.execute_wrapper(as_postgresql):
        assert client.get("/console/").status_code == 302


def test_places_in_a_trace_that_are_none(sign_in: SignIn, site_redis: RedisServer) -> None:
    row = traces.start(
        actor=SYSTEM, kind="twin", subject="7", lifetime_s=60, events_per_s=5, sample=1.0
    )
    viewer = sign_in("viewer")
    for cursor, status in ((f".{DIGITS}", 422), (".x", 422), ("x.1", 422), ("", 200), (".5", 200)):
        answer = viewer.get(f"/console/traces/{row.id}/", {"cursor": cursor})
        assert answer.status_code == status, cursor


def test_a_ban_beyond_the_calendar(sign_in: SignIn, site_redis: RedisServer) -> None:
    form = {"twin": "7", "lasts": "until", "until": "9999-12-31T23:59:59-14:00"}
    page = sign_in("operator").post("/console/limits/ban/", form)
    assert page.status_code == 200 and "The time must be before the end of" in page.content.decode()


@given(st.one_of(st.text(max_size=40), st.from_regex(TIME, fullmatch=True)))
@example("0001-01-01T00:00:00+14:00")
@example("9999-12-31T23:59:59-14:00")
@example("999999 d")
def test_times_of_filters(text: str) -> None:
    try:
        found = audit.time_of("since", text)
    except Invalid:
        return
    assert found is None or found.astimezone(UTC).tzinfo is UTC


def test_what_clients_put_into_headers(sign_in: SignIn, site_redis: RedisServer) -> None:
    """The queue's page shows messages with any uid and time, both of which clients choose."""
    put(site_redis, "7", request((3, None), (7, None), b"", uid="two\nlines"))
    far = request((3, None), (7, None), b"", uid="far")
    far.timestamp = far.expiration = U64
    put(site_redis, "7", far)
    text = sign_in("viewer").get("/console/queues/7/").content.decode()
    assert "two\nlines" in text and "far" in text
    assert "uid=two%0Alines" in text


@pytest.mark.parametrize("value", [float(U64), 1e300, -1e300, float("inf"), float("nan")])
def test_times_beyond_the_calendar(value: float) -> None:
    assert "<time" not in figures.moment(value)


@pytest.mark.parametrize("origin", [b"http://[", b"http://[x]", b"//", b"null", b""])
def test_origins_that_are_none(origin: bytes) -> None:
    scope = {"headers": [(b"host", b"localhost"), (b"origin", origin)]}
    assert not admittance.from_a_page_of_ours(scope)


def test_short_tables_are_no_files(sign_in: SignIn, site_redis: RedisServer) -> None:
    """Short tables offer no export: without a second page, it would repeat the first for ever."""
    now = timezone.now()
    Session.objects.bulk_create(
        Session(twin=7, epoch=each, worker="gone", opened_at=now, closed_at=now)
        for each in range(1001)
    )
    answer = sign_in("viewer").get("/console/twins/7/?e-export=json")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert answer.content.decode().count("<tr>") <= 2 * (SHORT_LIMIT + 1)


@pytest.mark.parametrize("target", ["", "table-queues", "question"])
def test_no_page_is_kept_by_the_browser(
    target: str, sign_in: SignIn, site_redis: RedisServer
) -> None:
    """The browser stores no page or part of one.

    A part of a page has the page's address: going back would show the part alone, and after signing
    out it would still show its content.
    """
    client = sign_in("viewer")
    for path in ("", "queues/", "search/", "charts/data.json", "twins/0/", "queues/?export=csv"):
        answer = client.get(f"/console/{path}", headers={"HX-Target": target})
        assert "no-store" in answer.headers.get("Cache-Control", ""), path
    # This page contains the secret of a second factor.
    assert "no-store" in client.get(SECOND_FACTOR, follow=True).headers.get("Cache-Control", "")


def test_a_purge_takes_what_was_there_when_it_was_asked(
    sign_in: SignIn, site_redis: RedisServer
) -> None:
    Twin.objects.create(id=7, account=make_twin(7).account)
    fill(site_redis, "7", 2)
    client = sign_in("operator")
    asked = client.get("/console/queues/7/purge/", follow=True)
    fill(site_redis, "7", 1)
    client.post(asked.request["PATH_INFO"] + "?" + asked.request["QUERY_STRING"])
    assert len(uids(site_redis, "7")) == 1


def test_a_twin_for_a_narrow_group(site_redis: RedisServer) -> None:
    """The permission to see twins does not include their sessions and queues."""
    now = timezone.now()
    Session.objects.create(
        twin=7, epoch=4, worker="gone", opened_at=now - timedelta(hours=3), closed_at=now,
        remote="192.0.2.77:4",
    )  # fmt: skip
    fill(site_redis, "7:private", 1)
    client = only("twin.view")
    text = client.get("/console/twins/7/").content.decode()
    assert "192.0.2.77" not in text and "7:private" not in text
    for part in ("twin-sessions", "twin-queues", "twin-ended"):
        headers = {"HX-Target": f"table-{part}"}
        text = client.get("/console/twins/7/", headers=headers).content.decode()
        assert "192.0.2.77" not in text and "7:private" not in text
