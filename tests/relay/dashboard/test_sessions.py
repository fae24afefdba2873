"""The session pages: connected sessions, ended ones, and ending them."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from proto.sbd.frames import path_of_key
from relay.ops import control
from relay.queues import keys
from relay.sessions.models import Session
from tests.proto.sbd.pairs import Identity
from tests.relay.conftest import AddWorker
from tests.relay.dashboard.conftest import SignIn
from tests.relay.ops.test_control import fields
from tests.support.published import publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

LIVE = "/console/sessions/"
ENDED = "/console/sessions/history/"
Hold = Callable[..., Session]


@pytest.fixture
def hold(site_redis: RedisServer) -> Hold:
    """Return a function that makes a live session, with its row and its entry in the directory."""

    def hold(twin: int, sid: str | None = None, *, epoch: int = 5, **fields: object) -> Session:
        row = Session.objects.create(
            twin=twin, sid_present=sid is not None, sid=sid or "", epoch=epoch, slot="2",
            **{"worker": "boot", "opened_at": timezone.now(), "remote": "192.0.2.7:4", **fields},
        )  # fmt: skip
        entry = f"{epoch} {row.worker} {time.time():.3f} {row.remote}"
        site_redis.run("HSET", keys.SESSIONS, row.key_text, entry)
        return row

    return hold


def shown(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def listed(client: Client, path: str, **query: str) -> list[str]:
    """Return the keys of the sessions that an address lists."""
    file = client.get(path, {**query, "export": "json"})
    assert file.status_code == 200, file.content
    return [each["key"] for each in json.loads(file.getvalue())]


def test_live_sessions(sign_in: SignIn, hold: Hold, add_worker: AddWorker) -> None:
    add_worker("boot", host="alpha", slot="2")
    hold(7, messages_in=4242, backlog=3)
    hold(7, "phone", epoch=6, user_agent="client/9")
    hold(7, "", epoch=8)
    hold(71, worker="gone", remote="198.51.100.1:9", opened_at=timezone.now() - timedelta(days=2))
    client = sign_in("operator")
    text = shown(client, LIVE)
    for expected in (
        "192.0.2.7:4",
        "alpha/2",
        "phone",
        "2 d ago",
        "/console/sessions/7:phone/kick/",
    ):
        assert expected in text
    assert "client/9" not in text, "nobody chose the column"
    assert "client/9" in shown(client, f"{LIVE}?column=key&column=user_agent")
    for query, expected in (
        ({"twin": "7"}, ["7:", "7:phone", "7"]),
        ({"sid": "phone"}, ["7:phone"]),
        ({"address": "198.51.100.1"}, ["71"]),
        ({"worker": "gone"}, ["71"]),
        ({"order": "-messages_in", "worker": "boot"}, ["7", "7:", "7:phone"]),
        ({"twin": "8"}, []),
    ):
        assert sorted(listed(client, LIVE, **query)) == sorted(expected), query
    assert listed(client, LIVE, order="-messages_in")[0] == "7"
    assert "twin: must be a whole number" in shown(client, f"{LIVE}?twin=x", 422)


def test_sessions_on_streams(sign_in: SignIn, hold: Hold, settings: Any) -> None:
    hold(7, "own")
    hold(7, "one of many", epoch=6, connection=3, stream=12)
    client = sign_in("viewer")
    text = shown(client, LIVE)
    assert "stream 12" in text and ">websocket<" in text
    assert "stream 12" in shown(client, "/console/twins/7/")
    assert listed(client, LIVE, carrier="streams") == ["7:one of many"]
    assert listed(client, LIVE, carrier="websocket") == ["7:own"]
    assert "carrier: must be one of" in shown(client, f"{LIVE}?carrier=pigeon", 422)
    Session.objects.update(closed_at=timezone.now())
    assert listed(client, ENDED, carrier="streams") == ["7:one of many"]
    settings.RMB = replace(settings.RMB, mux=replace(settings.RMB.mux, enabled=False))
    assert "stream 12" not in shown(client, ENDED)


def test_the_file_says_what_the_table_does(sign_in: SignIn, hold: Hold) -> None:
    hold(7, "=cmd", messages_in=12, user_agent="a,b")
    answer = sign_in("viewer").get(f"{LIVE}?twin=7&export=csv")
    (row,) = csv.DictReader(io.StringIO(answer.getvalue().decode()))
    assert (row["twin"], row["messages_in"], row["user_agent"]) == ("7", "12", "a,b")
    assert row["address"] == "192.0.2.7:4" and row["rate_in"] == "0.0"


def test_rates_are_there_at_the_first_look(
    sign_in: SignIn, hold: Hold, site_redis: RedisServer
) -> None:
    for twin, rate in ((7, 200), (8, 300), (9, 0)):
        row = hold(twin)
        if rate:
            publish(site_redis, row.key_text, row.epoch, messages_in=rate, bytes_out=2048)
    client = sign_in("viewer")
    text = shown(client, f"{LIVE}?column=rate_in&column=byte_rate_out")
    assert ">200/s<" in text and ">2 KiB/s<" in text and "over the last 2 s" in text
    assert listed(client, LIVE, order="-rate_in") == ["8", "7", "9"]
    assert listed(client, LIVE, order="byte_rate_out")[0] == "9"


def test_what_clients_sent_is_escaped(sign_in: SignIn, hold: Hold) -> None:
    hold(7, '"><script>alert(1)</script>/../?#~')
    text = shown(sign_in("operator"), LIVE)
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text


def test_kick(sign_in: SignIn, hold: Hold, site_redis: RedisServer) -> None:
    hold(7, "my/pho~ne", epoch=6)
    client = sign_in("operator")
    address = f"{LIVE}7:my~2Fpho~7Ene/kick/"
    assert f'"{address}?epoch=6"' in shown(client, LIVE)
    address += "?epoch=6"
    assert "Kick session 7:my/pho~ne" in shown(client, address)
    assert "kick:7:my/pho~ne" not in fields(site_redis), "a question"
    answer = client.post(address, {"reason": "noise"})
    assert (answer.status_code, answer.headers["Location"]) == (302, LIVE)
    assert fields(site_redis)["kick:7:my/pho~ne"] == "6|noise"
    assert "Session 7:my/pho~ne will end within a second" in shown(client, LIVE)
    old = client.post(address.replace("epoch=6", "epoch=5"))
    assert b"has taken session" in old.content
    assert b"is not connected" in client.post(f"{LIVE}8/kick/").content


def test_sbd_clients(sign_in: SignIn, hold: Hold, site_redis: RedisServer, settings: Any) -> None:
    hold(7, "phone")
    identity = Identity(1)
    peer = path_of_key(identity.key)
    row = Session.objects.create(
        protocol="sbd", peer=peer, epoch=9, worker="boot", slot="2", remote="198.51.100.1:9",
        opened_at=timezone.now(),
    )  # fmt: skip
    site_redis.run("HSET", keys.SBD_KEYS, identity.key, "boot 9")
    publish(site_redis, row.key_text, 9, messages_in=300)
    client = sign_in("operator")
    assert f">{peer}<" not in shown(client, LIVE), "SBD is off"
    served = replace(settings.RMB.sbd, enabled=True)
    settings.RMB = replace(settings.RMB, sbd=served)
    text = shown(client, LIVE)
    for expected in (f">{peer}<", ">SBD<", ">RMB<", "198.51.100.1:9", ">300/s<"):
        assert expected in text
    for query, expected in (
        ({"protocol": "sbd"}, [f"sbd:{peer}"]),
        ({"peer": peer[:9]}, [f"sbd:{peer}"]),
        ({"protocol": "rmb"}, ["7:phone"]),
        ({"order": "-rate_in"}, [f"sbd:{peer}", "7:phone"]),
    ):
        assert listed(client, LIVE, **query) == expected, query
    assert set(listed(client, LIVE, order="twin")) == {f"sbd:{peer}", "7:phone"}
    address = f"{LIVE}sbd:{peer}/kick/?epoch=9"
    assert f'"{address}"' in text and "without a close frame" in shown(client, address)
    client.post(address, {"reason": "noise"})
    assert fields(site_redis)[f"kick:sbd:{peer}"] == "9|noise"
    for number, reason in enumerate(("kicked", "worker_lost", "bad_signature", "slow_reader")):
        Session.objects.create(
            protocol="sbd", peer=peer, epoch=number, worker="boot", opened_at=timezone.now(),
            closed_at=timezone.now(), close_reason=reason,
        )  # fmt: skip
    text = shown(client, ENDED)
    for expected in (
        "an operator ended the connection",
        "the worker died",
        "slow reader",
        "bad signature",
    ):
        assert expected in text
    assert len(listed(client, ENDED, protocol="sbd", reason="slow_reader")) == 1
    assert len(listed(client, ENDED, order="-twin")) == 4


def test_kick_all_of_a_twin(sign_in: SignIn, hold: Hold, site_redis: RedisServer) -> None:
    for epoch, sid in enumerate((None, "a", "b")):
        hold(7, sid, epoch=epoch + 1)
    client = sign_in("operator")
    assert "/console/twins/7/kick/" in shown(client, f"{LIVE}?twin=7")
    assert "all its connections (now 3)" in shown(client, "/console/twins/7/kick/")
    answer = client.post("/console/twins/7/kick/", {"reason": "", "next": f"{LIVE}?twin=7"})
    assert answer.headers["Location"] == f"{LIVE}?twin=7"
    assert f"{control.KICK_TWIN_PREFIX}7" in fields(site_redis)
    assert "3 sessions of twin 7 will end within a second" in shown(client, LIVE)


def test_the_history(sign_in: SignIn, hold: Hold) -> None:
    now = timezone.now()
    for number, reason in enumerate(("idle", "kicked", "client_close", "of_the_future")):
        hold(
            7 + number, "x", worker="gone", opened_at=now - timedelta(hours=2), close_reason=reason,
            closed_at=now - timedelta(minutes=number),
        )  # fmt: skip
    hold(99)
    client = sign_in("viewer")
    text = shown(client, ENDED)
    for expected in ("idle", "ended by an operator", "client close", "of the future", "2 h"):
        assert expected in text
    assert listed(client, ENDED) == ["7:x", "8:x", "9:x", "10:x"]
    assert listed(client, ENDED, order="ended", limit="25")[0] == "10:x"
    assert listed(client, ENDED, reason="kicked") == ["8:x"]
    assert listed(client, ENDED, twin="9", sid="x", address="192.0.2.7", worker="gone") == ["9:x"]


def test_who_looks_does_not_act(sign_in: SignIn, hold: Hold, site_redis: RedisServer) -> None:
    hold(7)
    client = sign_in("viewer")
    assert "kick" not in shown(client, f"{LIVE}?twin=7").lower().replace("kicked", "")
    for path in (f"{LIVE}7/kick/", "/console/twins/7/kick/"):
        assert client.post(path).status_code == 403
    assert fields(site_redis) == {}


@pytest.mark.usefixtures("no_redis")
def test_without_redis(sign_in: SignIn) -> None:
    client = sign_in("operator")
    Session.objects.create(twin=7, epoch=1, worker="boot", opened_at=timezone.now())
    assert "Redis does not answer" in shown(client, LIVE, 503)
    assert "No session has ended yet" in shown(client, ENDED)
    assert "does not answer" in client.post(f"{LIVE}7/kick/", {"reason": ""}).content.decode()
