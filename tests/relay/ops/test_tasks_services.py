"""Failures of background tasks: bounded, without secrets, and retried once."""

from __future__ import annotations

import dataclasses
import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from relay.access.actor import Actor, Face
from relay.access.errors import Away, Conflict, Denied, NotFound
from relay.audit.models import AuditEntry
from relay.ops import background, task_record, tasks_services
from tests.relay.rest.conftest import account, bearer, token_of
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

ACTOR = Actor("tester", Face.CLI, "", None)
NOBODY = Actor("nobody", Face.REST, "", frozenset())


def run(*arguments: str) -> str:
    stdout = StringIO()
    call_command("rmb_celery", *arguments, stdout=stdout, stderr=StringIO())
    return stdout.getvalue()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Collect what is handed to the broker, which the test's Redis is not."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(background, "hand_over", lambda *task, **_: found.append(task))
    return found


def fail(task_id: str, *arguments: Any, error: str = "boom") -> None:
    task_record.failed(task_id, "federation.deliver", arguments, ValueError(error))


def test_failures_are_bounded(site_redis: RedisServer) -> None:
    for number in range(task_record.MAX_FAILED + 5):
        fail(f"t{number}", number, error="e" * 2000)
    found = tasks_services.failed()
    assert len(found) == task_record.MAX_FAILED
    assert found[0].id == "t204" and len(found[0].error) == task_record.MAX_ERROR_CHARS
    assert 0 < site_redis.run("TTL", task_record.FAILED) <= task_record.KEPT_S
    assert len(tasks_services.failed(3)) == 3


def test_errors_have_no_secrets(site_redis: RedisServer, settings: Any) -> None:
    settings.SECRET_KEY = "the-secret-key"
    redis = dataclasses.replace(settings.RMB.redis, url="redis://u:redis-pass@h/0")
    settings.RMB = dataclasses.replace(settings.RMB, redis=redis)
    task_record._secrets.cache_clear()
    try:
        shown = task_record.without_secrets(
            "postgresql://me:pw1@h/d AUTH redis-pass key the-secret-key token: abc jwt=xyz fine"
        )
    finally:
        task_record._secrets.cache_clear()
    assert shown == "postgresql://***@h/d AUTH *** key *** token: *** jwt=*** fine"


def test_retry(site_redis: RedisServer, started: list[tuple[Any, ...]]) -> None:
    fail("one", 3)
    fail("many", "x" * 500)
    with pytest.raises(Denied):
        tasks_services.retry("one", actor=NOBODY)
    assert tasks_services.retry("one", actor=ACTOR) == "federation.deliver"
    assert started == [("federation.deliver", 3)]
    with pytest.raises(NotFound):
        tasks_services.retry("one", actor=ACTOR)
    with pytest.raises(Conflict, match="more arguments"):
        tasks_services.retry("many", actor=ACTOR)
    assert [each.id for each in tasks_services.failed()] == ["many"]
    tasks_services.forget("many", actor=ACTOR)
    assert tasks_services.failed() == []
    assert [entry.action for entry in AuditEntry.objects.order_by("number")] == [
        "task.retry", "task.forget",
    ]  # fmt: skip


def test_a_retry_that_cannot_be_started_stays_on_the_list(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        assert len(tasks_services.failed()) == 1, "Redis may be away when it would be put back"
        raise background.NotStartedError("1000 tasks wait")

    monkeypatch.setattr(background, "hand_over", refuse)
    fail("one", 3)
    with pytest.raises(Conflict, match="1000 tasks wait"):
        tasks_services.retry("one", actor=ACTOR)
    assert len(tasks_services.failed()) == 1 and not AuditEntry.objects.exists()


def test_retry_over_rest(site_redis: RedisServer, started: list[tuple[Any, ...]]) -> None:
    owner = bearer(token_of(account("owner", "owner")))
    fail("one", 3)
    answer = owner.post("/api/v1/tasks/failed/one/retry")
    assert answer.json() == {"id": "one", "task": "federation.deliver"}
    assert started == [("federation.deliver", 3)]
    assert owner.post("/api/v1/tasks/failed/one/retry").status_code == 404


def test_what_runs_ends_with_its_process(site_redis: RedisServer) -> None:
    task_record.alive()
    task_record.began("one", "chain.follow", ())
    (running,) = tasks_services.running()
    assert (running.id, running.task, running.worker) == (
        "one", "chain.follow", task_record.process(),
    )  # fmt: skip
    assert 0 < site_redis.run("TTL", task_record.running_key(running.worker)) <= task_record.LIFE_S
    task_record.ended("one")
    assert tasks_services.running() == []


def test_rmb_celery(site_redis: RedisServer, started: list[tuple[Any, ...]]) -> None:
    fail("one", 3, error="away")
    site_redis.run("LPUSH", f"{background.KEY_PREFIX}default", json.dumps({"headers": {}}))
    with pytest.raises(SystemExit):
        run("status")
    for queue in background.QUEUES:
        site_redis.run("SET", background._alive(queue), "x")
    assert "default     1 wait\n" in run("status")
    assert json.loads(run("status", "--json"))["queues"][2]["waiting"] == 1
    assert "ValueError: away" in run("failed")
    assert json.loads(run("failed", "--json"))[0]["arguments"] == [3]
    assert run("retry", "one") == "federation.deliver is started again\n"
    fail("two")
    fail("three")
    document = json.loads(run("retry", "two", "--json"))
    assert document == {"id": "two", "task": "federation.deliver"}
    assert json.loads(run("forget", "three", "--json")) == {"id": "three"}
    for verb in ("retry", "forget"):
        with pytest.raises(CommandError, match="no failure"):
            run(verb, "one")


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    task_record.began("one", "t", ())
    task_record.ended("one")
    fail("one")
    for ask in (tasks_services.queues, tasks_services.running, tasks_services.failed):
        with pytest.raises(Away):
            ask()
