"""The page of workers, and draining a worker from it."""

from __future__ import annotations

import json
import time

import pytest

from relay.access.matrix import Role
from tests.relay.conftest import AddWorker
from tests.relay.dashboard.conftest import SignIn
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

WORKERS = "/console/workers/"
DRAIN = f"{WORKERS}boot-a/drain/"


@pytest.fixture
def three(add_worker: AddWorker) -> None:
    add_worker("boot-a", {"sbd_keys": 234}, host="alpha", slot="0", sessions=1000, loop_lag_ms=1.5,
               memory_bytes=2048)  # fmt: skip
    add_worker("boot-b", host="alpha", slot="1", state="draining", commit_p99_ms=25)
    add_worker("boot-c", host="beta", slot="0", heartbeat=time.time() - 20)


@pytest.mark.usefixtures("three")
def test_workers_as_they_do(sign_in: SignIn) -> None:
    client = sign_in(Role.OPERATOR)
    text = client.get(WORKERS).content.decode()
    for expected in ("alpha/0", ">1,234<", ">1.5 ms<", ">2 KiB<", ">25 ms<", "draining", "silent"):
        assert expected in text, expected
    assert f'href="{DRAIN}"' in text
    assert "boot-b/drain" not in text, "it drains already"
    alone = client.get(WORKERS, headers={"HX-Target": "table-workers"}).content.decode()
    assert "alpha/0" in alone and "<html" not in alone


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("order", "first"),
    [("-name", "beta/0"), ("state", "beta/0"), ("-sessions", "alpha/0"), ("-p99", "alpha/1")],
)
def test_orders_and_pages(sign_in: SignIn, order: str, first: str) -> None:
    client = sign_in(Role.VIEWER)
    answer = client.get(WORKERS, {"order": order, "export": "json"})
    rows = json.loads(b"".join(answer))
    assert rows[0]["name"] == first
    assert len(rows) == 3
    assert rows[0].keys() > {"boot_id", "pid", "memory_bytes"}, "also what is not shown"


def test_a_bad_order_is_told(sign_in: SignIn, site_redis: RedisServer) -> None:
    answer = sign_in(Role.VIEWER).get(WORKERS, {"order": "colour"})
    assert answer.status_code == 422
    assert b"must be one of name, state" in answer.content


@pytest.mark.usefixtures("three")
def test_draining_asks_first(sign_in: SignIn, site_redis: RedisServer) -> None:
    client = sign_in(Role.OPERATOR)
    text = client.get(DRAIN).content.decode()
    assert "Drain worker alpha/0" in text
    assert "Its 1,234 sessions are closed within 5 s" in text
    assert fields(site_redis) == {}
    answer = client.post(DRAIN)
    assert (answer.status_code, answer["Location"]) == (302, WORKERS)
    assert fields(site_redis) == {"version": "1", "drain:boot-a": "1"}
    assert b"alpha/0 closes its sessions" in client.get(WORKERS).content
    assert client.get(f"{WORKERS}nobody/drain/").status_code == 404


@pytest.mark.usefixtures("three")
def test_looking_is_not_acting(sign_in: SignIn, site_redis: RedisServer) -> None:
    client = sign_in(Role.VIEWER)
    assert b"/drain/" not in client.get(WORKERS).content
    assert client.post(DRAIN).status_code == 403
    assert fields(site_redis) == {}


@pytest.mark.usefixtures("no_redis")
def test_without_redis_the_page_says_so(sign_in: SignIn) -> None:
    client = sign_in(Role.OPERATOR)
    for path in (WORKERS, DRAIN):
        answer = client.get(path)
        assert answer.status_code == 503
        assert b"Redis does not answer" in answer.content
