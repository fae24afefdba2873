"""Workers through the services and on the command line."""

from __future__ import annotations

import json
import time
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from relay.access.actor import Actor, Face
from relay.access.errors import Away, Conflict, Denied, NotFound
from relay.audit.models import AuditEntry
from relay.ops import services
from tests.relay.conftest import AddWorker
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

ACTOR = Actor("tester", Face.CLI, "", None)
NOBODY = Actor("nobody", Face.REST, "", frozenset())


def run(*arguments: str) -> str:
    stdout = StringIO()
    call_command("rmb_workers", *arguments, stdout=stdout, stderr=StringIO())
    return stdout.getvalue()


def test_workers(add_worker: AddWorker) -> None:
    add_worker("a", {"sbd_keys": 1001}, slot="0", sessions=3, commit_p50_ms="0.5",
               commit_p99_ms="2.5", memory_bytes=50_000_000)  # fmt: skip
    add_worker("b", slot="1", commit_p50_ms="", heartbeat=time.time() - 20)
    first, second = services.list_workers()
    assert (first.commit_p50_ms, first.commit_p99_ms, first.memory_bytes) == (0.5, 2.5, 50_000_000)
    assert (first.state, second.state, second.commit_p99_ms) == ("ok", "silent", None)
    assert (first.sessions, first.sbd_sessions, first.all_sessions) == (3, 1001, 1004)
    assert 85 < first.uptime_s < 120
    assert services.get_worker("b") == second or services.get_worker("b").state == "silent"
    assert "0.5/2.5" in run("list") and "silent" in run("list")
    assert " 1004 " in run("list")
    assert [each["boot_id"] for each in json.loads(run("list", "--json"))] == ["a", "b"]


def test_drain(add_worker: AddWorker, site_redis: RedisServer) -> None:
    add_worker("a", sessions=3)
    add_worker("b", state="draining")
    services.drain("a", actor=ACTOR)
    assert fields(site_redis)["drain:a"] == "1"
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target) == ("worker.drain", "a")
    assert json.loads(entry.before_json)["sessions"] == 3
    with pytest.raises(Conflict):
        services.drain("b", actor=ACTOR)
    with pytest.raises(NotFound):
        services.drain("c", actor=ACTOR)
    with pytest.raises(Denied):
        services.drain("a", actor=NOBODY)
    assert AuditEntry.objects.count() == 1
    assert run("drain", "a") == "worker a drains\n"
    assert json.loads(run("drain", "a", "--json")) == {"boot_id": "a"}
    with pytest.raises(CommandError, match="no worker c"):
        run("drain", "c")


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    with pytest.raises(Away):
        services.list_workers()
    with pytest.raises(Away):
        services.drain("a", actor=ACTOR)
