"""The page of the chain: whether it is followed, importing, and its latest events."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from django.test import Client

from relay.access.matrix import Role
from relay.ops import background
from relay.ops.redis_client import client as redis
from relay.queues import keys
from relay.twins import chain_events, chain_import
from relay.twins.models import Twin
from tests.relay.dashboard.conftest import SignIn
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

CHAIN = "/console/chain/"
IMPORT = f"{CHAIN}import/"


@pytest.fixture
def on_chain(site_redis: RedisServer, settings: Any) -> None:
    """Take twins from the chain, which no process follows in the test."""
    settings.RMB = dataclasses.replace(
        settings.RMB,
        twins=dataclasses.replace(settings.RMB.twins, source="tfchain"),
        substrate=dataclasses.replace(settings.RMB.substrate, urls=("ws://a.node", "ws://b.node")),
    )


def page(client: Client, path: str = CHAIN, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200, (path, answer.status_code)
    return answer.content.decode()


def follow(**fields: Any) -> None:
    values = {"height": 4711, "hash": "00" * 32, "head_height": 4713, "head_at": time.time() - 3,
              "url": "ws://a.node", "by": "host/1", "stored": 5, **fields}  # fmt: skip
    redis().hset(keys.CHAIN, mapping=values)
    redis().set(keys.CHAIN_LEASE, "somebody")


def note(kind: chain_events.Kind, *told: tuple[int, int]) -> None:
    with redis().pipeline() as pipe:
        chain_events.note(pipe, kind, told)
        pipe.execute()


def test_beside_a_registry_the_page_says_so(sign_in: SignIn, site_redis: RedisServer) -> None:
    client = sign_in(Role.OPERATOR)
    assert "This relay does not follow a chain" in page(client)
    answer = client.post(IMPORT, follow=True)
    assert "there is nothing to import" in answer.content.decode()


@pytest.mark.usefixtures("on_chain")
def test_nobody_follows(sign_in: SignIn) -> None:
    text = page(sign_in(Role.VIEWER))
    for expected in ("not followed", "nobody follows the chain", "reported no change", "b.node"):
        assert expected in text, expected
    assert "Import all twins" not in text, "a viewer may not"


@pytest.mark.usefixtures("on_chain")
def test_following(sign_in: SignIn) -> None:
    follow()
    Twin.objects.create(id=7, account=bytes(32), relays="a.example", source=Twin.Source.CHAIN)
    note(chain_events.Kind.CHANGED, (7, 4710), (9, 4711))
    note(chain_events.Kind.MISSED, (0, 4000))
    client = sign_in(Role.VIEWER)
    text = page(client)
    for expected in (">following<", "4711", ">2</data> blocks", "ws://a.node (used now)", "host/1",
                     "a.example", "blocks skipped", "changed"):  # fmt: skip
        assert expected in text, expected
    assert text.index("blocks skipped") < text.index("a.example"), "the latest first"
    following = client.get(CHAIN, headers={"HX-Target": "chain-facts"}).content.decode()
    assert "host/1" in following and "<table" not in following
    follow(head_at=time.time() - 90)
    assert "no new block for 90 s" in page(client)


@pytest.mark.usefixtures("on_chain")
def test_pages_of_events(sign_in: SignIn) -> None:
    note(chain_events.Kind.CHANGED, *((number, 100 + number) for number in range(1, 61)))
    client = sign_in(Role.VIEWER)
    answer = client.get(CHAIN, {"limit": "25"})
    following = client.get(answer.context["table"].next_href)
    twins = [row.values["twin"] for row in following.context["table"].rows]
    assert twins == list(range(35, 10, -1))
    assert client.get(CHAIN, {"cursor": "x"}).status_code == 422


@pytest.mark.usefixtures("on_chain")
def test_an_import(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(background, "hand_over", lambda task, **_: started.append(task))
    client = sign_in(Role.OPERATOR)
    assert "The relay reads every twin from a node" in page(client, IMPORT)
    assert not started
    assert client.post(IMPORT)["Location"] == CHAIN
    assert started == [chain_import.TASK]
    running = {"state": "running", "twins": 250, "newest_id": 1000, "began": time.time() - 5}
    redis().hset(keys.CHAIN_IMPORT, mapping=running)
    redis().set(keys.CHAIN_IMPORT_LEASE, "somebody")
    text = page(client)
    for expected in ("running", 'value="0.25"', ">250</data> of", ">1,000</data>"):
        assert expected in text, expected
    assert "continues after 250 twins" in page(client, IMPORT)


@pytest.mark.usefixtures("on_chain")
def test_looking_is_not_acting(sign_in: SignIn) -> None:
    assert sign_in(Role.VIEWER).post(IMPORT).status_code == 403
    assert redis().hgetall(keys.CHAIN_IMPORT) == {}
