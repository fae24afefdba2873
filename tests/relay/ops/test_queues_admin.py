"""Queues in the admin: headers, and a purge of what the page showed."""

from __future__ import annotations

import pytest
from django.test import Client

from relay.queues import keys
from relay.twins.models import Twin
from tests.relay.queues.mail import fill, put
from tests.support.envelopes import request
from tests.support.identities import twin as make_twin
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/admin/relay_ops/queue/"


@pytest.fixture
def server(site_redis: RedisServer) -> RedisServer:
    Twin.objects.create(id=7, account=make_twin(7).account)
    fill(site_redis, "7", 3)
    fill(site_redis, "7:x", 2)
    put(site_redis, "7:x", request((3, "<script>"), (7, "x"), b"secret", uid="<b>"))
    site_redis.run("HSET", keys.SESSIONS, "7:x", "1 boot 1.0 127.0.0.1")
    return site_redis


def shown(client: Client, **query: str) -> str:
    answer = client.get(PAGE, query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_pages(server: RedisServer, admin_client: Client) -> None:
    text = shown(admin_client)
    assert "?key=7%3Ax" in text and "connected" in text
    assert text.count('name="purge"') == 1
    assert "?key=7%3Ax" not in shown(admin_client, q="8")
    text = shown(admin_client, key="7:x")
    assert "&lt;script&gt;" in text and "<script>x" not in text and "secret" not in text
    assert "request test.cmd" in text
    assert "does not start with a twin id" in shown(admin_client, key="x")


def test_purge(server: RedisServer, admin_client: Client) -> None:
    newest = server.run("XREVRANGE", "stream:7", "+", "-")[0][0].decode()
    fill(server, "7", 1, "later")
    admin_client.post(PAGE, {"purge": f"{newest} 7"})
    assert server.run("XLEN", "stream:7") == 1
    assert "3 messages deleted" in shown(admin_client)
    admin_client.post(PAGE, {"purge": f"{newest} 7:x"})
    assert "its mail is its own business" in shown(admin_client)
    for nonsense in ("", "7", "x 7"):
        admin_client.post(PAGE, {"purge": nonsense})
    assert server.run("XLEN", "stream:7:x") == 3 and server.run("XLEN", "stream:7") == 1


def test_looking_is_not_acting(server: RedisServer, viewer: Client) -> None:
    assert 'name="purge"' not in shown(viewer)
    assert viewer.post(PAGE, {"purge": "9-9 7"}).status_code == 403
    assert server.run("XLEN", "stream:7") == 3


@pytest.mark.usefixtures("no_redis")
def test_without_redis(admin_client: Client) -> None:
    assert "Redis does not answer" in shown(admin_client)
    assert "Redis does not answer" in shown(admin_client, key="7")
