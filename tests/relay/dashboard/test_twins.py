"""The twin pages: the list, one twin, and the import of a file."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from proto.identity import ss58
from relay.access.actor import SYSTEM
from relay.limits import services as limits
from relay.queues import keys
from relay.sessions.models import Session
from relay.trace import services as traces
from relay.twins.models import Twin
from tests.relay.dashboard.conftest import SignIn
from tests.relay.queues.mail import fill
from tests.support.identities import twin as make_twin
from tests.support.published import publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/console/twins/"
MAX_QUERIES = 16


@pytest.fixture
def server(site_redis: RedisServer) -> RedisServer:
    """Make twins 7 (connected), 8 (from the chain) and 9 (banned), and a queue of 7."""
    for number, fields in (
        (7, {"relays": "a.example_b.example", "encryption_key": b"\2" * 33}),
        (8, {"relays": "a.example", "source": "chain", "height": 4711}),
        (9, {}),
    ):
        Twin.objects.create(id=number, account=make_twin(number).account, **fields)
    now = timezone.now()
    Session.objects.create(twin=7, epoch=5, worker="boot", opened_at=now, remote="192.0.2.7:4")
    Session.objects.create(
        twin=7, epoch=4, worker="gone", opened_at=now - timedelta(hours=3),
        closed_at=now - timedelta(hours=2), close_reason="idle",
    )  # fmt: skip
    site_redis.run("HSET", keys.SESSIONS, "7", f"5 boot {now.timestamp()} 192.0.2.7:4")
    limits.ban(9, "noise", actor=SYSTEM)
    fill(site_redis, "7:x", 3)
    return site_redis


def shown(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def listed(client: Client, **query: str) -> list[int]:
    return [
        each["id"] for each in json.loads(client.get(LIST, {**query, "export": "json"}).getvalue())
    ]


def test_the_list(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("viewer")
    text = shown(client, LIST)
    for expected in ("connected", "banned", "a.example, b.example", "chain", "/console/twins/9/"):
        assert expected in text
    address = ss58.encode(make_twin(8).account)
    for query, expected in (
        ({}, [7, 8, 9]),
        ({"order": "-id"}, [9, 8, 7]),
        ({"text": "8"}, [8]),
        ({"text": address}, [8]),
        ({"text": "B.EX"}, [7]),
        ({"relay": "a.example"}, [7, 8]),
        ({"source": "chain"}, [8]),
        ({"state": "connected"}, [7]),
        ({"state": "away"}, [8, 9]),
        ({"state": "banned"}, [9]),
        ({"state": "banned", "source": "chain"}, []),
    ):
        assert listed(client, **query) == expected, query
    assert "source: must be one of" in shown(client, f"{LIST}?source=x", 422)


def test_by_rate(server: RedisServer, sign_in: SignIn) -> None:
    publish(server, "8:a", 1, messages_in=30, messages_out=1)
    publish(server, "8:b", 2, "other", messages_in=30)
    publish(server, "7", 5, messages_in=40, messages_out=9)
    client = sign_in("viewer")
    assert listed(client, order="-rate_in") == [8, 7, 9]
    assert listed(client, order="-rate_out") == [7, 8, 9]
    assert listed(client, order="rate_in", relay="a.example") == [7, 8]
    text = shown(client, LIST)
    assert ">60/s<" in text and "over the last 2 s" in text


def test_all_that_is_known_of_one(server: RedisServer, sign_in: SignIn) -> None:
    order = traces.start("session", "7:x", actor=SYSTEM)
    traces.start("twin", "77", actor=SYSTEM)
    limits.set_limit(7, 10, 2048, actor=SYSTEM)
    minute = int(timezone.now().timestamp()) // 60
    server.run("ZADD", keys.hits("twin", minute), 42, "7")
    client = sign_in("operator")
    client.get("/console/access/own/")  # records the account's last use, at most once a minute
    with CaptureQueriesContext(connection) as queries:
        text = shown(client, f"{LIST}7/")
    for expected in (
        ss58.encode(make_twin(7).account), "0x" + "02" * 33, "a.example, b.example",
        "192.0.2.7:4", "/console/queues/7:x/", "idle", f"/console/traces/{order.id}/",
        "10 messages, 2 KiB (its own)", '?target=7">system</a>', "<rect",
        "42</data></strong> messages from this twin were refused",
    ):  # fmt: skip
        assert expected in text, expected
    assert "1 trace follows it" in text
    assert len(queries) <= MAX_QUERIES, [each["sql"] for each in queries]


def test_what_can_be_done_about_it(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("owner")
    owner = shown(client, f"{LIST}7/")
    for address in (
        f"{LIST}7/kick/", "/console/limits/ban/?twin=7", "/console/limits/set/?twin=7",
        "/console/traces/start/?kind=twin&amp;subject=7", f"{LIST}7/change/", f"{LIST}7/remove/",
    ):  # fmt: skip
        assert address in owner, address
    assert f"{LIST}7/purge/" not in owner, "it may come for its mail"
    banned = shown(sign_in("operator"), f"{LIST}9/")
    assert "/console/limits/9/lift/" in banned and f"{LIST}9/purge/" in banned
    assert (
        "limits/ban/" not in banned and "/change/" not in banned and f"{LIST}9/kick/" not in banned
    )
    viewer = shown(sign_in("viewer"), f"{LIST}7/")
    assert "data-ask" not in viewer


def test_one_that_is_not_known(server: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    text = shown(client, f"{LIST}4000000000/")
    assert "this relay does not know the twin" in text and f"{LIST}4000000000/purge/" in text
    for nonsense in ("0", "99999999999"):
        assert "there can be no twin" in shown(client, f"{LIST}{nonsense}/", 404)


def test_parts_refresh_alone(server: RedisServer, sign_in: SignIn) -> None:
    answer = sign_in("viewer").get(f"{LIST}7/", headers={"HX-Target": "table-twin-sessions"})
    text = answer.content.decode()
    assert "192.0.2.7:4" in text and "<html" not in text and "7:x" not in text


def test_a_file_brings_many(server: RedisServer, sign_in: SignIn) -> None:
    client, account = sign_in("owner"), ss58.encode(make_twin(20).account)

    def send(text: str, **fields: str) -> str:
        file = SimpleUploadedFile("twins.csv", text.encode())
        answer = client.post(f"{LIST}import/", {"file": file, **fields}, follow=True)
        return answer.content.decode()

    assert 'enctype="multipart/form-data"' in shown(client, f"{LIST}import/")
    head = "id,account,pk,relays\n"
    refused = send(f"{head}20,{account},,here\n21,nonsense,,\n")
    assert "nothing was imported" in refused and "line 3: account" in refused
    assert not Twin.objects.filter(pk=20).exists()
    told = send(f"{head}20,{account},,here\n21,nonsense,,\n", keep_going="on")
    assert "1 twins added, 0 changed, 1 lines with errors" in told
    assert Twin.objects.get(pk=20).relays == "here"
    assert "This field is required" in client.post(f"{LIST}import/").content.decode()
    assert sign_in("operator").get(f"{LIST}import/").status_code == 403


@pytest.mark.usefixtures("no_redis")
def test_without_redis(sign_in: SignIn) -> None:
    Twin.objects.create(id=7, account=make_twin(7).account)
    client = sign_in("viewer")
    assert "/console/twins/7/" in shown(client, LIST)
    text = shown(client, f"{LIST}7/", 503)
    assert "Redis does not answer" in text and ss58.encode(make_twin(7).account) in text
