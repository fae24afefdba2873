"""Changes over REST: applied once, only to the state they were made for, and audited."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any

import pytest
import redis.exceptions
from django.test import Client

from proto.identity import ss58
from relay.access import tokens
from relay.access.models import ApiToken
from relay.access.roles import keep_true
from relay.audit import services as audit
from relay.audit.models import AuditEntry
from relay.limits.models import TwinLimit
from relay.queues import keys
from relay.rest import bounds, idempotency
from relay.twins.models import Twin
from tests.relay.federation import stored
from tests.relay.rest.test_shell import refused
from tests.support.identities import twin
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

ACCOUNT = ss58.encode(twin(7).account)
MEANT = {"unknown": True}
"""Body that confirms a twin which this relay does not know."""


@pytest.fixture
def committed(transactional_db: None) -> None:
    """Let changes be committed, so that threads see them.

    Such a database is emptied after each test and then has no groups: the next `migrate` makes
    them, and so does this fixture.
    """
    keep_true("default")


def send(client: Client, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Send a request with a JSON body; names of headers are given with underscores."""
    form = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.generic(method, f"/api/v1{path}", headers=named, **form)


def test_a_repeat_gets_the_stored_answer(operator: Client) -> None:
    body = {"reason": "noise", **MEANT}
    first = send(operator, "POST", "/limits/7/ban", body, idempotency_key="a")
    again = send(operator, "POST", "/limits/7/ban", body, idempotency_key="a")
    assert first.status_code == again.status_code == 200
    assert first.content == again.content and idempotency.REPLAYED not in first
    assert again[idempotency.REPLAYED] == "true"
    assert AuditEntry.objects.filter(action="ban.set").count() == 1
    send(operator, "POST", "/limits/7/ban", body, idempotency_key="b")
    assert AuditEntry.objects.filter(action="ban.set").count() == 2


def test_a_key_belongs_to_one_body_one_address_and_one_token(
    operator: Client, owner: Client
) -> None:
    send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key="a")
    answer = send(operator, "POST", "/limits/7/ban", {"reason": "x"}, idempotency_key="a")
    assert refused(answer, 409)["errors"][0]["field"] == "header.Idempotency-Key"
    for client, path in ((operator, "/limits/8/ban"), (owner, "/limits/7/ban")):
        assert idempotency.REPLAYED not in send(client, "POST", path, MEANT, idempotency_key="a")


@pytest.mark.parametrize("key", ["", "x" * 129, "\x7f"])
def test_a_key_is_a_short_text(operator: Client, key: str) -> None:
    refused(send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key=key), 422)


def test_what_was_done_is_told_although_redis_cannot_keep_it(
    operator: Client, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise redis.exceptions.OutOfMemoryError("used memory > 'maxmemory'")

    monkeypatch.setattr(idempotency, "_kept", full)
    answer = send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key="a")
    assert answer.status_code == 200 and TwinLimit.objects.get(twin=7).banned
    refused(send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key="a"), 409)
    assert AuditEntry.objects.filter(action="ban.set").count() == 1


def test_one_caller_cannot_fill_redis_with_keys(
    operator: Client, owner: Client, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "KEPT_LONG", 2)
    for number in range(4):
        answer = send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key=str(number))
        assert answer.status_code == 200
    assert send(owner, "POST", "/limits/7/ban", MEANT, idempotency_key="0").status_code == 200
    lives = sorted(site_redis.run("TTL", key) for key in site_redis.run("KEYS", "relay:rest:key:*"))
    assert [life > bounds.SHORT_LIFE_S for life in lives] == [False, False, True, True, True]
    again = send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key="3")
    assert again[idempotency.REPLAYED] == "true"


@pytest.mark.parametrize(("method", "path"), [("POST", "/limits/7/ban"), ("PUT", "/limits/7")])
def test_a_twin_that_may_be_misspelt_is_refused(operator: Client, method: str, path: str) -> None:
    answer = refused(send(operator, method, path, {}), 404)
    assert 'does not know twin 7: check the id, or allow unknown ones ("unknown": true)' in str(
        answer["detail"]
    )
    assert not TwinLimit.objects.exists() and not AuditEntry.objects.exists()
    assert send(operator, method, path, MEANT).status_code == 200
    assert send(operator, method, path, {}).status_code == 200, "there is a decision about it"


def test_what_failed_may_be_tried_again_with_its_key(operator: Client) -> None:
    path = "/limits/7/lift-ban"
    refused(send(operator, "POST", path, idempotency_key="a"), 404)
    TwinLimit.objects.create(twin=7, banned=True)
    assert send(operator, "POST", path, idempotency_key="a").status_code == 200


def test_the_same_request_at_once_is_refused(
    committed: None, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relay.limits import services

    inside, go_on = threading.Event(), threading.Event()
    real = services.ban

    def slow(*args: Any, **options: Any) -> None:
        inside.set()
        assert go_on.wait(10)
        real(*args, **options)

    monkeypatch.setattr(services, "ban", slow)
    answers: list[Any] = []

    def first() -> None:
        answers.append(send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key="a"))

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    second = send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key="a")
    go_on.set()
    thread.join()
    refused(second, 409)
    assert second["Retry-After"] == "1"
    assert answers[0].status_code == 200


def test_without_redis_a_key_is_no_promise(operator: Client, no_redis: None) -> None:
    answer = send(operator, "POST", "/limits/7/ban", MEANT, idempotency_key="a")
    refused(answer, 503)
    assert answer["Retry-After"] and not TwinLimit.objects.exists()


def test_a_token_is_shown_once(owner: Client, site_redis: RedisServer) -> None:
    body = {"label": "ci", "role": "viewer"}
    made = send(owner, "POST", "/tokens", body, idempotency_key="a")
    assert made.status_code == 201
    text = made.json()["text"]
    assert tokens.authenticate(text, "") is not None
    refused(send(owner, "POST", "/tokens", body, idempotency_key="a"), 409)
    assert ApiToken.objects.filter(label="ci").count() == 1
    stored_values = [site_redis.run("GET", key) for key in site_redis.run("KEYS", "relay:rest:*")]
    shown = [owner.get("/api/v1/tokens").content, owner.get("/api/v1/audit").content]
    assert text.split("_", 2)[2] not in repr(stored_values) + repr(shown)
    assert send(owner, "POST", f"/tokens/{made.json()['id']}/revoke").status_code == 200
    assert tokens.authenticate(text, "") is None


def test_a_twin_lists_relays_that_can_be_reached(owner: Client, settings: Any) -> None:
    own = dataclasses.replace(settings.RMB.relay, domains=("here.example", "too.example"))
    settings.RMB = dataclasses.replace(settings.RMB, relay=own)
    added = send(owner, "PUT", "/twins/7", {"account": ACCOUNT})
    assert (added.status_code, added.json()["relays"]) == (200, ["here.example"]), "the default"
    entered = ["RELAY.example.", "[::1]:8080"]
    kept = send(owner, "PATCH", "/twins/7", {"relays": entered})
    assert kept.json()["relays"] == entered, "shown as they were entered"
    assert send(owner, "PUT", "/twins/7", {"account": ACCOUNT, "relays": []}).json()["relays"] == []
    answer = send(owner, "PATCH", "/twins/7", {"relays": ["a.example", "wss://b.example/x"]})
    refused(answer, 422)
    assert "did you mean b.example?" in answer.content.decode()


def test_a_change_for_an_older_state_is_refused(owner: Client) -> None:
    body = {"account": ACCOUNT, "relays": ["a.example"]}
    refused(send(owner, "PUT", "/twins/7", body, if_match='"x"'), 412)
    refused(send(owner, "PUT", "/twins/7", {**body, "account": f"0x{'00' * 32}"}), 422)
    assert send(owner, "PUT", "/twins/7", body).status_code == 200
    tag = owner.get("/api/v1/twins/7")["ETag"]
    unchanged = send(owner, "GET", "/twins/7", if_none_match=tag)
    assert (unchanged.status_code, unchanged["ETag"], unchanged.content) == (304, tag, b"")
    changed = send(owner, "PATCH", "/twins/7", {"relays": []}, if_match=tag)
    assert (changed.status_code, changed.json()["relays"]) == (200, [])
    assert changed.json()["account"] == ACCOUNT
    refused(send(owner, "PATCH", "/twins/7", {"relays": ["b"]}, if_match=tag), 412)
    refused(send(owner, "DELETE", "/twins/7", if_match=tag), 412)
    assert send(owner, "DELETE", "/twins/7", if_match=f'{tag}, "x", *').status_code == 412
    assert send(owner, "DELETE", "/twins/7", if_match="*").status_code == 204
    assert not Twin.objects.exists()
    actions = list(AuditEntry.objects.order_by("number").values_list("action", "face"))
    assert actions == [("twin.put", "rest"), ("twin.put", "rest"), ("twin.remove", "rest")]


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[1]", "application/json", 422),
        (b'{"reason": NaN}', "application/json", 400),
        (b'{"reason": "a", "reason": "b"}', "application/json", 400),
        (b'{"reason": "\\u0000"}', "application/json", 422),
        (b'{"reason": "\\ud800"}', "application/json", 422),
        (b'{"reason": ' + b"[" * 100_000, "application/json", 400),
        (b'{"reason": ' + b"[" * 20 + b"]" * 20 + b"}", "application/json", 400),
        (b'{"reason": 1}', "application/json", 422),
        (b'{"unknown": 1}', "application/json", 422),
        (b'{"until": "2026-01-01T00:00:00"}', "application/json", 422),
        (b"\xff", "application/json", 400),
        (b"reason=a", "application/x-www-form-urlencoded", 415),
        (b'{"reason": "' + b"x" * (1 << 20) + b'"}', "application/json", 413),
    ],
)
def test_a_body_that_is_none_is_refused(
    operator: Client, content: bytes, media_type: str, status: int
) -> None:
    path = "/api/v1/limits/7/ban"
    refused(operator.generic("POST", path, data=content, content_type=media_type), status)
    assert not TwinLimit.objects.exists()


def test_an_import_is_all_or_nothing(owner: Client) -> None:
    good = f"id,account,pk,relays\n7,{ACCOUNT},,a.example\n"
    path = "/api/v1/twins/import"
    wrong = owner.generic("POST", path, data=f"{good}8,x,,\n", content_type="text/csv")
    assert refused(wrong, 422)["errors"][0]["field"] == "line 3"
    assert not Twin.objects.exists()
    done = owner.generic("POST", path, data=good, content_type="text/csv")
    assert (done.status_code, done.json()["added"]) == (200, 1)


def test_dead_letters_are_sent_again_or_deleted(operator: Client, site_redis: RedisServer) -> None:
    first, second = (stored.add_dead(site_redis, stored.message()) for _ in range(2))
    page = operator.get("/api/v1/dead-letters?limit=1").json()
    assert [each["entry"] for each in page["items"]] == [second]
    page = operator.get(f"/api/v1/dead-letters?limit=1&cursor={page['next']}").json()
    assert ([each["entry"] for each in page["items"]], page["next"]) == ([first], None)
    assert "secret payload" not in str(page) and page["items"][0]["tries"][0]["answer"] == "404"
    requeued = send(operator, "POST", f"/dead-letters/{first}/requeue").json()
    waiting = operator.get("/api/v1/outbox/messages").json()["items"]
    assert [each["entry"] for each in waiting] == [requeued["entry"]]
    assert send(operator, "DELETE", f"/dead-letters/{second}").status_code == 204
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 0
    refused(send(operator, "POST", f"/dead-letters/{first}/requeue"), 404)
    for _ in range(2):
        stored.add_dead(site_redis, stored.message())
    all_of_one = f"/relays/{stored.PARTNER}/requeue"
    assert send(operator, "POST", all_of_one).json() == {"count": 2}
    refused(send(operator, "POST", all_of_one), 404)


def test_the_outbox_is_listed_in_order_over_its_shards(
    operator: Client, site_redis: RedisServer
) -> None:
    entries = [
        stored.add_pending(site_redis, stored.message(destination=to))
        for to in (12, 13, 12, 15, 14)
    ]
    found: list[str] = []
    cursor = ""
    while True:
        page = operator.get(f"/api/v1/outbox/messages?limit=2{cursor}").json()
        found += [each["entry"] for each in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(found) == sorted(entries) and len(found) == 5


def test_a_relay_is_decided_about(
    committed: None, operator: Client, site_redis: RedisServer
) -> None:
    stored.add_partner(site_redis, failures=3, retry_at=4_000_000_000, last_error="503")
    (row,) = operator.get("/api/v1/relays").json()["items"]
    assert (row["domain"], row["live"]["in_a_row"]) == (stored.PARTNER, 3)
    path = f"/relays/{stored.PARTNER}"
    assert send(operator, "POST", f"{path}/pause").json()["paused"] is True
    assert site_redis.run("HGET", keys.CONTROL, f"relay:{stored.PARTNER}") == b"paused"
    assert send(operator, "POST", f"{path}/resume").json()["paused"] is False
    assert operator.get(f"/api/v1{path}/live").json()["retry_at"] is None
    refused(send(operator, "PUT", "/relays/no%20domain", {}), 422)
    assert send(operator, "PATCH", path, {"note": "ours"}).json()["note"] == "ours"
    assert send(operator, "DELETE", path).status_code == 204
    refused(send(operator, "POST", f"{path}/block"), 404)


def test_an_operator_on_the_site_needs_its_csrf_token(site_redis: Any) -> None:
    from tests.relay.rest.conftest import account

    client = Client(enforce_csrf_checks=True)
    client.force_login(account("ops", "operator"))
    refused(send(client, "POST", "/limits/7/ban", MEANT), 403)
    client.cookies["csrftoken"] = "a" * 32
    done = send(client, "POST", "/limits/7/ban", MEANT, x_csrftoken="a" * 32)
    assert done.status_code == 200
    entry = AuditEntry.objects.get(action="ban.set")
    assert (entry.actor, entry.face) == ("ops", "rest")


def test_one_check_of_the_audit_log_at_a_time(
    operator: Client, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second verification is refused: each reads the whole log, and any viewer may start one."""
    send(operator, "POST", "/limits/7/ban", MEANT)
    verify = audit.verify

    def slow(*_: Any) -> Any:
        monkeypatch.setattr(audit, "verify", verify)
        refused(send(viewer, "POST", "/audit/verify"), 409)
        return verify()

    monkeypatch.setattr(audit, "verify", slow)
    for _ in range(2):
        answer = send(operator, "POST", "/audit/verify").json()
        assert (answer["intact"], answer["entries"]) == (True, 1)
