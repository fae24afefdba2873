"""Searching pages, twins, sessions, relays and messages by a word."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from proto.sbd.frames import path_of_key
from relay.access.matrix import Role
from relay.federation.models import RelayNode
from relay.queues import keys
from relay.sessions.models import Session
from relay.twins.models import Twin
from tests.proto.sbd.pairs import Identity
from tests.relay.dashboard.conftest import SignIn
from tests.support.identities import twin as make_twin
from tests.support.published_connections import connection, publish_connections
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def hits(client: Client, text: str) -> list[dict[str, Any]]:
    answer = client.get("/console/search/", {"q": text}, headers={"accept": "application/json"})
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["hits"]
    return found


def named(client: Client, text: str) -> list[tuple[str, str]]:
    return [(hit["kind"], hit["title"]) for hit in hits(client, text)]


@pytest.fixture
def client(site_redis: RedisServer, sign_in: SignIn) -> Client:
    Twin.objects.create(id=7, account=make_twin(7).account, relays="relay.example.com")
    RelayNode.objects.create(domain="far.example.net")
    return sign_in(Role.VIEWER)


def test_pages(client: Client) -> None:
    everything = hits(client, "")
    assert {hit["kind"] for hit in everything} == {"page"}
    assert ("page", "Queues") in named(client, "queue")
    assert ("page", "Queues") in named(client, "Relay que")
    # An account does not find what it may not see.
    assert "Access" not in {hit["title"] for hit in everything}


def test_objects(client: Client) -> None:
    assert ("twin", "Twin 7") in named(client, "7")
    assert ("twin", "Twin 7") in named(client, make_twin(7).account.hex().join(("0x", "")))
    assert ("relay", "far.example.net") in named(client, "far.ex")
    assert ("message", "a" * 32) in named(client, "a" * 32)
    for hit in hits(client, "7") + hits(client, "far.ex"):
        assert client.get(hit["href"]).status_code == 200, hit


def test_connections_by_their_address(client: Client, site_redis: RedisServer) -> None:
    publish_connections(site_redis, "boot", [connection(3), connection(4, address="[::1]:5")])
    for text, title in (("192.0.2.1", "192.0.2.1:5003"), ("::1", "[::1]:5")):
        (hit,) = hits(client, text)
        assert (hit["kind"], hit["title"]) == ("connection", title)
        assert client.get(hit["href"]).status_code == 200
    assert named(client, "192.0.2") == []


def test_sbd_clients_by_their_keys(client: Client, site_redis: RedisServer) -> None:
    identity = Identity(1)
    peer = path_of_key(identity.key)
    Session.objects.create(
        protocol="sbd", peer=peer, epoch=9, worker="boot", opened_at=timezone.now()
    )
    site_redis.run("HSET", keys.SBD_KEYS, identity.key, "boot 9")
    for text in (peer, f"sbd:{peer}", peer[:8]):
        (hit,) = [each for each in hits(client, text) if each["kind"] == "session"]
        assert hit["title"] == f"sbd:{peer}"
        assert peer in client.get(hit["href"]).content.decode()
    assert "session" not in {hit["kind"] for hit in hits(client, peer[1:])}


def test_nonsense(client: Client) -> None:
    for text in ("<script>alert(1)</script>", "x" * 5000, "7:" + "y" * 200, "99999999999"):
        assert named(client, text) == []
    assert hits(client, "\x00\n") == hits(client, "")
    page = client.get("/console/search/", {"q": "<script>alert(1)</script>"}).content.decode()
    assert "<script>alert" not in page and "Nothing found" in page


@pytest.mark.usefixtures("no_redis")
def test_without_redis(sign_in: SignIn) -> None:
    Twin.objects.create(id=8, account=make_twin(8).account)
    assert ("twin", "Twin 8") in named(sign_in(Role.VIEWER), "8")
