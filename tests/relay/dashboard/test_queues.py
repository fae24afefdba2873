"""The queue pages: how long messages wait, their headers, and deleting and moving them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from relay.access.actor import SYSTEM
from relay.audit.models import AuditEntry
from relay.limits import services as limits
from relay.queues import keys
from relay.sessions.models import Session
from relay.twins.models import Twin
from tests.relay.dashboard.conftest import SignIn
from tests.relay.queues.mail import fill, put, uids
from tests.support.envelopes import request
from tests.support.identities import twin as make_twin
from tests.support.published import publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/console/queues/"


@pytest.fixture
def server(site_redis: RedisServer) -> RedisServer:
    """Put three messages in the queue of 7, and three in that of 7:x, which is connected."""
    Twin.objects.create(id=7, account=make_twin(7).account)
    fill(site_redis, "7", 3)
    fill(site_redis, "7:x", 2)
    put(site_redis, "7:x", request((3, "<script>"), (7, "x"), b"secret", uid="<b>"))
    site_redis.run("HSET", keys.SESSIONS, "7:x", "1 boot 1.0 127.0.0.1")
    row = Session(twin=7, sid_present=True, sid="x", epoch=1, worker="boot")
    row.opened_at = timezone.now() - timedelta(hours=1)
    row.save()
    return site_redis


def shown(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def test_the_list(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    text = shown(client, PAGE)
    assert 'href="/console/queues/7:x/"' in text and "connected" in text
    assert text.count("/purge/?up_to=") == 1, "not of the connected one"
    assert "/console/queues/7:x/" not in shown(client, f"{PAGE}?connected=no")
    assert "Nothing matches" in shown(client, f"{PAGE}?twin=8")
    rows = json.loads(client.get(f"{PAGE}?export=json&order=-messages").getvalue())
    assert [(row["key"], row["messages"], row["state"]) for row in rows] == [
        ("7", 3, "offline"), ("7:x", 3, "connected"),
    ]  # fmt: skip
    assert rows[0]["fill"] == pytest.approx(3 / 10_000, rel=2)


def test_by_rate(server: RedisServer, sign_in: SignIn) -> None:
    publish(server, "7", stored=4)
    publish(server, "7:x", 1, messages_out=20, stored=2)
    client = sign_in("viewer")
    for order, expected in (("-rate_in", ["7", "7:x"]), ("-rate_out", ["7:x", "7"])):
        rows = json.loads(client.get(f"{PAGE}?export=json&order={order}").getvalue())
        assert [row["key"] for row in rows] == expected
    text = shown(client, PAGE)
    assert ">20/s<" in text and ">4/s<" in text and "over the last 2 s" in text


def test_ages_are_drawn(server: RedisServer, sign_in: SignIn) -> None:
    answer = sign_in("viewer").get(PAGE, headers={"HX-Target": "queue-ages"})
    text = answer.content.decode()
    assert text.lstrip().startswith("<section") and "up to 10 s" in text and "<rect" in text


def test_headers_and_no_payloads(server: RedisServer, sign_in: SignIn) -> None:
    text = shown(sign_in("viewer"), f"{PAGE}7:x/")
    assert "&lt;script&gt;" in text and "<script>x" not in text and "secret" not in text
    assert "request test.cmd" in text and "/console/traces/message/" in text
    assert "/console/twins/3/" in text
    assert "No messages wait for 7:y" in shown(sign_in("operator"), f"{PAGE}7:y/")
    assert "does not start with a twin id" in shown(sign_in("owner"), f"{PAGE}x/", 422)


def test_old_and_malformed_messages_are_told(server: RedisServer, sign_in: SignIn) -> None:
    put(server, "7", b"\xff", entry=f"{int(datetime.now(UTC).timestamp() * 1000) + 5}-1")
    assert "malformed" in shown(sign_in("viewer"), f"{PAGE}7/")


def test_a_file_is_the_operators_and_in_the_log(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    assert f"{PAGE}7/export/?form=csv" in shown(client, f"{PAGE}7/")
    lines = client.get(f"{PAGE}7/export/?form=jsonl").getvalue().decode().splitlines()
    assert [json.loads(line)["uid"] for line in lines] == ["m0", "m1", "m2"]
    assert AuditEntry.objects.filter(action="queue.export", target="7").count() == 1
    viewer = sign_in("viewer")
    assert "export" not in shown(viewer, f"{PAGE}7/").lower()
    assert viewer.get(f"{PAGE}7/export/").status_code == 403


def test_purge_deletes_what_was_shown(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    newest = server.run("XREVRANGE", "stream:7", "+", "-")[0][0].decode()
    address = f"{PAGE}7/purge/?up_to={newest}"
    assert address in shown(client, f"{PAGE}7/")
    assert "3 messages" in shown(client, address)
    fill(server, "7", 1, "later")
    assert client.post(address).headers["Location"] == PAGE
    assert uids(server, "7") == ["later0"]
    assert "3 messages for 7 deleted" in shown(client, PAGE)
    client.post(f"{PAGE}7:x/purge/?up_to=9-9")
    assert "kick it before you purge its queue" in shown(client, PAGE)
    assert shown(client, f"{PAGE}8/purge/", 404)


def test_move_to_another_session(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    question = shown(client, f"{PAGE}7/move/")
    assert "7:x (connected)" in question and "3 messages go to the end" in question
    assert "Choose a session" in client.post(f"{PAGE}7/move/", {"target": ""}).content.decode()
    assert client.post(f"{PAGE}7/move/", {"sid": "new one"}).status_code == 302
    assert uids(server, "7:new one") == ["m0", "m1", "m2"]
    assert "3 messages moved to 7:new one" in shown(client, PAGE)
    answer = client.post(f"{PAGE}7:new one/move/", {"target": "7:x"})
    assert answer.status_code == 302 and len(uids(server, "7:x")) == 6


def test_all_mail_of_a_banned_twin_goes(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    assert "neither banned nor removed" in shown(client, "/console/twins/7/purge/", 409)
    limits.ban(7, "noise", actor=SYSTEM)
    assert "3 messages in 1 queues" in shown(client, "/console/twins/7/purge/")
    for number in range(60):
        fill(server, f"7:{number}", 1)
    assert "63 messages in 61 queues" in shown(client, "/console/twins/7/purge/")
    assert client.post("/console/twins/7/purge/").status_code == 302
    assert server.run("XLEN", "stream:7") == 0


def test_who_looks_does_not_act(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("viewer")
    assert "/purge/" not in shown(client, PAGE) and "/move/" not in shown(client, f"{PAGE}7/")
    for path in (f"{PAGE}7/purge/?up_to=9-9", f"{PAGE}7/move/", "/console/twins/7/purge/"):
        assert client.post(path, {"sid": "y"}).status_code == 403
    assert server.run("XLEN", "stream:7") == 3


@pytest.mark.usefixtures("no_redis")
def test_without_redis(sign_in: SignIn) -> None:
    client = sign_in("operator")
    for path in (PAGE, f"{PAGE}7/", f"{PAGE}7/purge/"):
        assert "Redis does not answer" in shown(client, path, 503)
