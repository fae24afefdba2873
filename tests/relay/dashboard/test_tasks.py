"""The page of background tasks: queues, running tasks, failures, and starting one again."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from relay.access.matrix import Role
from relay.ops import background, task_record, tasks_services
from tests.relay.dashboard.conftest import SignIn
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

TASKS = "/console/tasks/"


def fail(task_id: str, *arguments: Any, error: str = "boom") -> str:
    task_record.failed(task_id, "federation.deliver", arguments, ValueError(error))
    return f"{TASKS}{task_id}/"


def test_empty(sign_in: SignIn, site_redis: RedisServer) -> None:
    text = sign_in(Role.VIEWER).get(TASKS).content.decode()
    for expected in (
        "federation",
        "chain",
        "default",
        "no worker",
        "No task runs now",
        "No task failed",
    ):
        assert expected in text, expected


def test_queues_and_what_runs(sign_in: SignIn, site_redis: RedisServer) -> None:
    message = json.dumps({"headers": {background.SENT_AT: time.time() - 90}})
    site_redis.run("LPUSH", f"{background.KEY_PREFIX}federation", message)
    site_redis.run("SET", "relay:background:chain", "x 1")
    task_record.alive()
    task_record.began("t1", "chain.follow", ["<i>"])
    text = sign_in(Role.VIEWER).get(TASKS).content.decode()
    for expected in (">1 min<", "served", "chain.follow", "&lt;i&gt;", task_record.process()):
        assert expected in text, expected


def test_failures(
    sign_in: SignIn, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(background, "hand_over", lambda *task, **_: started.append(task))
    one = fail("one", 3, error="<b>no</b>")
    many = fail("many", "x" * 500)
    client = sign_in(Role.OPERATOR)
    text = client.get(TASKS).content.decode()
    for expected in ("ValueError: &lt;b&gt;no", "too many", f"{one}retry/", f"{many}forget/"):
        assert expected in text, expected
    assert f"{many}retry/" not in text, "nobody knows with what"
    assert "Start federation.deliver(3) again" in client.get(f"{one}retry/").content.decode()
    assert not started
    assert client.post(f"{one}retry/")["Location"] == TASKS
    assert started == [("federation.deliver", 3)]
    assert (
        "the record of its error: ValueError: boom" in client.get(f"{many}forget/").content.decode()
    )
    client.post(f"{many}forget/")
    assert tasks_services.failed() == []
    assert client.get(f"{many}forget/").status_code == 404


def test_each_table_alone(sign_in: SignIn, site_redis: RedisServer) -> None:
    fail("one", 3)
    client = sign_in(Role.OPERATOR)
    alone = client.get(TASKS, headers={"HX-Target": "table-failed-tasks"}).content.decode()
    assert "boom" in alone and "running-tasks" not in alone
    exported = client.get(TASKS, {"f-export": "csv"})
    assert b"".join(exported).decode().splitlines()[1].endswith(",one")
    chosen = client.get(TASKS, {"f-column": ["id", "at"]}).content.decode()
    assert chosen.count('name="f-column" value="id" checked') == 1
    assert 'name="q-column" value="waiting" checked' in chosen, "the other tables stay"


def test_looking_is_not_acting(sign_in: SignIn, site_redis: RedisServer) -> None:
    one = fail("one", 3)
    client = sign_in(Role.VIEWER)
    assert b"/retry/" not in client.get(TASKS).content
    for verb in ("retry", "forget"):
        assert client.post(f"{one}{verb}/").status_code == 403
    assert len(tasks_services.failed()) == 1
