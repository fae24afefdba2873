"""The page of nodes."""

from __future__ import annotations

import json

import pytest

from relay.ops import redis_use
from tests.relay.dashboard.conftest import SignIn
from tests.relay.ops.test_nodes import PROCESS, tell
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

PAGE = "/console/nodes/"


def test_machines_processes_disks_and_redis(
    site_redis: RedisServer, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_use, "KEPT_S", 0.0)  # other tests measured the same server
    tell(site_redis, "alpha", processes=[PROCESS, {**PROCESS, "name": "operator site", "pid": 8,
                                                   "rss_bytes": 9 << 20}])  # fmt: skip
    tell(site_redis, "beta")
    site_redis.run("XADD", "stream:7", "*", "_", "x" * 100_000)
    client = sign_in("viewer")
    text = client.get(PAGE).content.decode()
    for expected in (
        *("alpha 5", "0.50 0.25 0.12", ">14 MiB<", ">4 GiB<", "worker 0", ">25 %<", "1,024"),
        *("data folder", "at least", "/srv/rmb", "Memory of Redis, an estimate", "queues"),
    ):
        assert expected in text, expected
    rows = json.loads(b"".join(client.get(PAGE, {"order": "-memory", "export": "json"})))
    assert [(each["host"], each["name"]) for each in rows] == [
        ("alpha", "operator site"), ("alpha", "worker 0"), ("beta", "worker 0"),
    ]  # fmt: skip
    assert client.get(PAGE, {"order": "colour"}).status_code == 422
    alone = client.get(PAGE, headers={"HX-Target": "table-redis-use"}).content.decode()
    assert "queues" in alone and "<html" not in alone and "worker 0" not in alone


def test_nothing_was_told(site_redis: RedisServer, sign_in: SignIn) -> None:
    assert "No supervisor has reported" in sign_in("viewer").get(PAGE).content.decode()


@pytest.mark.usefixtures("no_redis")
def test_without_redis_the_page_says_so(sign_in: SignIn) -> None:
    answer = sign_in("viewer").get(PAGE)
    assert answer.status_code == 503 and b"Redis does not answer" in answer.content
