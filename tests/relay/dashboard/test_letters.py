"""The pages of messages for partner relays: the outbox, dead letters, and one message of each."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from relay.access.matrix import Role
from relay.queues import keys
from tests.relay.dashboard.conftest import SignIn
from tests.relay.federation.stored import PARTNER, add_dead, add_pending, message
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

OUTBOX = "/console/outbox/"
LETTERS = "/console/letters/"


def page(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200, (path, answer.status_code)
    return answer.content.decode()


def uids(client: Client, path: str, **query: str) -> list[str]:
    """Return the uids of the whole list."""
    return [
        row["uid"] for row in json.loads(b"".join(client.get(path, {"export": "json", **query})))
    ]


def test_empty(sign_in: SignIn, site_redis: RedisServer) -> None:
    client = sign_in(Role.VIEWER)
    assert "No messages wait for partner relays" in page(client, OUTBOX)
    assert "No message failed permanently" in page(client, LETTERS)


def test_the_outbox(sign_in: SignIn, site_redis: RedisServer) -> None:
    entry = add_pending(site_redis, message(uid="<script>\nalert(1)</script>"))
    tried = '{"at": 1795218450, "relay": "<b>", "answer": "503", "ms": 40}'
    site_redis.run("RPUSH", keys.tries(4, entry), tried)
    client = sign_in(Role.VIEWER)
    one = f"{OUTBOX}4/{entry}/"
    for path in (OUTBOX, one):
        text = page(client, path)
        for expected in ("&lt;script&gt;", "&lt;b&gt;", "503", "40 ms", PARTNER, "test.cmd"):
            assert expected in text, (path, expected)
        for dangerous in ("<script>", "<b>", "secret payload"):
            assert dangerous not in text
    assert f'href="{one}"' in page(client, OUTBOX)
    for nonsense in ("9/1-1", "4/x", "4/1-1"):
        assert client.get(f"{OUTBOX}{nonsense}/").status_code == 404


def test_pages_of_the_outbox(sign_in: SignIn, site_redis: RedisServer) -> None:
    names = [f"u{number:03}" for number in range(130)]
    for number, name in enumerate(names):
        account = PARTNER if number % 65 else "other.example"
        add_pending(site_redis, message(destination=number, uid=name), account=account)
    client = sign_in(Role.VIEWER)
    assert uids(client, OUTBOX) == names, "the oldest first, over all shards, nothing twice"
    assert uids(client, OUTBOX, relay="other.example") == ["u000", "u065"]
    answer = client.get(OUTBOX, {"limit": "25"})
    assert "u024" in answer.content.decode() and "u025" not in answer.content.decode()
    following = client.get(answer.context["table"].next_href).content.decode()
    assert "u025" in following and "u024" not in following
    assert client.get(OUTBOX, {"cursor": "x"}).status_code == 422


def test_pages_of_dead_letters(sign_in: SignIn, site_redis: RedisServer) -> None:
    names = [f"u{number:03}" for number in range(110)]
    for number, name in enumerate(names):
        account = PARTNER if number % 50 else f"a.example_{PARTNER[1:]}_z.example"
        why = "expired" if number % 2 else "remote_4xx"
        add_dead(site_redis, message(uid=name), why, **{"for": account})
    client = sign_in(Role.VIEWER)
    assert uids(client, LETTERS) == names[::-1], "the latest first"
    assert uids(client, LETTERS, relay="a.example") == ["u100", "u050", "u000"]
    assert uids(client, LETTERS, relay="example") == [], "a whole domain"
    assert uids(client, LETTERS, relay="z.example", why="expired") == []
    assert len(uids(client, LETTERS, why="expired")) == 55
    answer = client.get(LETTERS, {"limit": "25", "why": "expired"})
    following = client.get(answer.context["table"].next_href).content.decode()
    assert "u059" in following and "u061" not in following and "u058" not in following
    assert client.get(LETTERS, {"cursor": "x"}).status_code == 422


def test_a_dead_letter(sign_in: SignIn, site_redis: RedisServer) -> None:
    entry = add_dead(site_redis, message(uid="the-uid"))
    client = sign_in(Role.OPERATOR)
    one = f"{LETTERS}{entry}/"
    for path in (LETTERS, one):
        text = page(client, path)
        for expected in ("remote_4xx", "test.cmd", "the-uid", PARTNER, "404", f"{one}requeue/"):
            assert expected in text, (path, expected)
        assert "secret payload" not in text
    assert "from 7 to 12 again" in page(client, f"{one}requeue/")
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 1, "asking does nothing"
    assert client.post(f"{one}requeue/")["Location"] == LETTERS
    assert "is in the outbox again" in page(client, LETTERS)
    assert site_redis.run("XLEN", keys.outbox(4)) == 1
    assert client.post(f"{one}requeue/").status_code == 404


def test_deleting_one_names_what_is_lost(sign_in: SignIn, site_redis: RedisServer) -> None:
    entry = add_dead(site_redis, message())
    client = sign_in(Role.OPERATOR)
    text = page(client, f"{LETTERS}{entry}/delete/")
    assert "the record of its 1 attempts" in text
    client.post(f"{LETTERS}{entry}/delete/")
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 0
    for nonsense in ("x", "-", "+", "9" * 50, entry):
        assert client.post(f"{LETTERS}{nonsense}/delete/").status_code == 404


def test_looking_is_not_acting(sign_in: SignIn, site_redis: RedisServer) -> None:
    entry = add_dead(site_redis, message())
    client = sign_in(Role.VIEWER)
    for path in (LETTERS, f"{LETTERS}{entry}/"):
        assert "data-ask" not in page(client, path)
    for verb in ("requeue", "delete"):
        assert client.post(f"{LETTERS}{entry}/{verb}/").status_code == 403
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 1


@pytest.mark.usefixtures("no_redis")
def test_without_redis_the_pages_say_so(sign_in: SignIn) -> None:
    client = sign_in(Role.OPERATOR)
    for path in (OUTBOX, LETTERS, f"{OUTBOX}1/1-1/", f"{LETTERS}1-1/", f"{LETTERS}1-1/requeue/"):
        answer = client.get(path)
        assert answer.status_code == 503
        assert b"Redis does not answer" in answer.content
