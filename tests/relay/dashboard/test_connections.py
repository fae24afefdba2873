"""Kicking a connection, in the console and over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from relay.queues import keys
from tests.relay.dashboard.conftest import SignIn
from tests.support.published_connections import connection, publish_connections
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/api/v1/connections/boot/3/kick"


def test_kick(site_redis: RedisServer, sign_in: SignIn) -> None:
    publish_connections(site_redis, "boot", [connection(3)])
    viewer: Client = sign_in("viewer")
    operator: Client = sign_in("operator")
    page = "/console/connections/boot/3/"
    body: dict[str, Any] = {"data": {"reason": "noise"}, "content_type": "application/json"}
    assert viewer.post(PATH, **body).status_code == 403
    assert operator.post(PATH, **body).json() == {"sessions": 3}
    assert viewer.post(f"{page}kick/").status_code == 403
    assert f"{page}kick/" not in viewer.get("/console/connections/").content.decode()
    for path in ("/console/connections/", page):
        assert f"{page}kick/" in operator.get(path).content.decode()
    assert "now 3" in operator.get(f"{page}kick/").content.decode()
    assert operator.post(f"{page}kick/", {"reason": "calm"}).status_code == 302
    assert site_redis.run("HGETALL", keys.CONTROL)[b"kick_connection:boot:3"] == b"3|calm"
    assert operator.get("/console/connections/boot/9/kick/").status_code == 404
