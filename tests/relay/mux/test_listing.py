"""Lists of connections for operators: the service, REST, the console and `rmb_sessions`."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from relay.access.errors import Away, Invalid, NotFound
from relay.mux import listing
from relay.mux.report import StreamFigures
from relay.queues import keys
from relay.sessions.models import Session, moment
from tests.relay.conftest import AddWorker
from tests.support.published_connections import connection, publish_connections
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

REST = "/api/v1/connections"
CONSOLE = "/console/connections/"


@pytest.fixture
def server(site_redis: RedisServer, add_worker: AddWorker) -> RedisServer:
    """Publish connections of two workers; the first has a connection with three streams."""
    add_worker("boot", host="alpha", slot="2")
    streams = [
        StreamFigures(0, "7:x", "open", 0, 4096, 0),
        StreamFigures(2, "8", "open", 9, 0, 5),
        StreamFigures(4, "", "signing_in", 9, 0, 0),
    ]
    first = connection(3, queued_bytes=4096, address="[2001:db8::1]:5000")
    publish_connections(site_redis, "boot", [first, connection(9)], {3: streams})
    publish_connections(site_redis, "other", [connection(3, streams=5, user_agent="=cmd|1")])
    return site_redis


def listed(**options: Any) -> list[str]:
    return [each.id for each in listing.live(**options).items]


def test_the_list(server: RedisServer) -> None:
    assert listed() == ["boot/9", "other/3", "boot/3"]
    assert listed(order="-queued_bytes", limit=1) == ["boot/3"]
    assert listed(worker="other") == ["other/3"] and listed(worker="gone") == []
    assert listed(address="192.0.2.1") == ["boot/9", "other/3"]
    assert listed(address="2001:db8::1") == listed(address="[2001:db8::1]:5000") == ["boot/3"]
    assert listed(address="192.0.2.1:5003") == ["other/3"] and listed(address="192.0.2") == []
    page = listing.live(limit=2)
    assert listed(limit=2, cursor=page.next) == ["boot/3"]
    with pytest.raises(Invalid, match="order"):
        listed(order="name")


def test_one_with_its_streams(server: RedisServer) -> None:
    found = listing.get("boot", 3)
    assert (found.streams, found.queued_bytes, found.opened_at) == (3, 4096, moment(1.7e9))
    ids = [each.id for each in listing.streams("boot", 3, order="-held_bytes").items]
    assert ids == [2, 0, 4]
    (one,) = listing.streams("boot", 3, stream=0).items
    assert (one.session, one.state, one.credit, one.queued_bytes) == ("7:x", "open", 0, 4096)
    assert listing.streams("boot", 9).items == []
    for worker, number in (("boot", 4), ("gone", 3)):
        with pytest.raises(NotFound, match=f"no connection {worker}/{number}"):
            listing.get(worker, number)


@pytest.mark.parametrize("text", ["{", "null", "7", '"x"', '[[1], 7, ["x"], {}]', "[[" * 5000])
def test_a_report_that_is_none(server: RedisServer, text: str) -> None:
    """A malformed report, from another release or program, counts as empty."""
    for name in (keys.connections("boot"), keys.streams("boot")):
        server.run("SET", name, text)
    assert listed() == ["other/3"]
    assert listing.streams("boot", 3).items == []


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    for ask in (listing.live, lambda: listing.get("boot", 3), lambda: listing.streams("boot", 3)):
        with pytest.raises(Away, match="Redis does not answer"):
            ask()


def test_over_rest(server: RedisServer, viewer: Client) -> None:
    found = viewer.get(REST, {"order": "-queued_bytes", "limit": "1"}).json()
    assert [each["id"] for each in found["items"]] == ["boot/3"] and found["next"]
    one = viewer.get(f"{REST}/boot/3").json()
    assert one == found["items"][0]
    streams = viewer.get(f"{REST}/boot/3/streams").json()["items"]
    assert [each["session"] for each in streams] == ["7:x", "8", None]
    assert streams[0] == {
        "id": 0, "session": "7:x", "state": "open", "credit": 0, "queued_bytes": 4096,
        "held_bytes": 0,
    }  # fmt: skip
    assert viewer.get(f"{REST}/boot/4/streams").status_code == 404
    assert viewer.get(f"{REST}/boot/4").status_code == 404
    assert viewer.get(REST, {"order": "x"}).status_code == 422


def test_in_the_console(server: RedisServer, viewer: Client) -> None:
    text = viewer.get(CONSOLE).content.decode()
    assert "[2001:db8::1]:5000" in text and "alpha/2" in text
    assert f"{CONSOLE}boot/3/" in text and "=cmd|1" not in text
    assert "Connections with streams" in viewer.get("/console/sessions/").content.decode()
    page = viewer.get(f"{CONSOLE}boot/3/").content.decode()
    for expected in ("[2001:db8::1]:5000 at worker alpha/2", "4 KiB", "signing in",
                     "/console/sessions/?twin=7&amp;sid=x", "client/1"):  # fmt: skip
        assert expected in page, expected
    assert "signing in" not in viewer.get(f"{CONSOLE}boot/3/?stream=2").content.decode()
    assert "signing in" not in viewer.get(f"{CONSOLE}boot/3/?stream=6").content.decode()
    assert viewer.get(f"{CONSOLE}boot/4/").status_code == 404
    row = Session.objects.create(
        twin=7, epoch=5, worker="boot", opened_at=moment(1.7e9), connection=3, stream=2
    )
    server.run("HSET", keys.SESSIONS, row.key_text, "5 boot 1.0 192.0.2.1")
    assert f"{CONSOLE}boot/3/?stream=2" in viewer.get("/console/sessions/").content.decode()


def test_by_the_command(server: RedisServer) -> None:
    stdout = StringIO()
    call_command("rmb_sessions", "--connections", "--json", stdout=stdout)
    assert [each["id"] for each in json.loads(stdout.getvalue())] == ["boot/9", "other/3", "boot/3"]
    stdout = StringIO()
    call_command("rmb_sessions", "--connections", "--worker", "boot", "--limit", "1", stdout=stdout)
    _, line = stdout.getvalue().splitlines()
    assert line.split()[1:] == ["9", "9", "0", "0", "0", "0", "192.0.2.1:5009", "boot/9"]
