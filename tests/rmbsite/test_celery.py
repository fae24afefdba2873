"""Tests with real Celery workers: running, killed, without Redis, stopped, orphaned."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from relay.access.actor import Actor, Face
from relay.ops import background, tasks_services
from relay.server.child import Child, ChildSpec
from relay.server.supervisor import Supervisor
from rmbsite import broker
from rmbsite.celery import app
from tests.relay.conftest import use_redis
from tests.support.celery_child import MARKS
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.started import exists
from tests.support.waiting import eventually

READY_S = 60.0
OPERATOR = Actor("operator", Face.CLI, "", None)
RECONNECT_S = 50.0


def marks(server: RedisServer) -> list[str]:
    """Return the marks that the tasks left in Redis."""
    return [mark.decode() for mark in server.run("LRANGE", MARKS, 0, -1)]


Keep = Callable[..., AbstractAsyncContextManager[Supervisor]]


@pytest.fixture
def server(tmp_path: Path) -> Any:
    own = start_valkey(tmp_path / "redis", append_fsync="no")
    yield own
    own.remove()


@pytest.fixture
def spec(server: RedisServer, tmp_path: Path) -> Callable[..., ChildSpec]:
    def make(queues: str, *more: str, stop_grace_s: float = 10.0) -> ChildSpec:
        return ChildSpec(
            f"Celery ({queues})",
            "tests.support.celery_child",
            ("--queues", queues, "--threads", "2", *more),
            environment={
                "RMB_REDIS__URL": server.unix_url,
                "RMB_DATA__DIR": str(tmp_path / "data"),
                "RMB_TWINS__SOURCE": "registry",
            },
            stop_grace_s=stop_grace_s,
            vital=False,
        )

    return make


@contextlib.asynccontextmanager
async def kept(*specs: ChildSpec) -> AsyncIterator[Supervisor]:
    """Run children under a supervisor of their own."""
    supervisor = Supervisor()
    async with supervisor.handling_signals(), asyncio.timeout(120):
        await asyncio.gather(*(supervisor.keep(each) for each in specs))
        yield supervisor


@pytest.fixture
def send(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sends a task to the workers of `server`, past the usual broker."""
    settings = broker.settings_of(server.unix_url)

    def start(task: str, *arguments: Any) -> None:
        with app.connection_for_write(settings["broker_url"]) as connection:
            connection.transport_options = settings["broker_transport_options"]
            app.send_task(task, arguments, connection=connection)

    return start


async def test_tasks_run_and_the_schedule_starts_them(
    server: RedisServer, spec: Any, send: Any
) -> None:
    async with kept(spec("federation"), spec("chain,default", "--beat")):
        send("test.note", "hello")
        await eventually(lambda: "hello" in marks(server), READY_S)
        await eventually(lambda: marks(server).count("beat") >= 3, READY_S)
        with server.client() as client:
            assert background.queues_without_worker(client) == []
    stray = [key for key in server.run("KEYS", "*") if not key.startswith((b"relay:", b"test:"))]
    assert not stray, "everything of the broker is under the relay's own names"


@pytest.mark.django_db(transaction=True)
async def test_what_runs_and_what_failed_is_noted(
    server: RedisServer, spec: Any, send: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_redis(settings, server.unix_url)

    def start(task: str, *arguments: Any, **_: Any) -> None:
        send(task, *arguments)

    monkeypatch.setattr(background, "hand_over", start)  # this process uses another broker
    send("test.note", "waits")
    assert [(each.waiting, each.taken) for each in tasks_services.queues()] == [
        (0, False), (0, False), (1, False),
    ]  # fmt: skip
    async with kept(spec("chain,default")) as supervisor:
        await eventually(lambda: "waits" in marks(server), READY_S)
        assert [each.taken for each in tasks_services.queues()] == [False, True, True]
        send("test.linger", 60)
        (running,) = await eventually(tasks_services.running, READY_S)
        (child,) = [each.child for each in supervisor._others]
        assert (running.task, running.arguments) == ("test.linger", "60")
        assert running.worker.endswith(f"/{child.pid}") and running.since <= time.time()
        assert tasks_services.unacknowledged() == 1
        send("test.fail", "redis://:1/hunter2@host is away, password=hunter3")
        (failure,) = await eventually(tasks_services.failed, READY_S)
        assert (failure.task, failure.worker) == ("test.fail", running.worker)
        assert failure.error.startswith("ConnectionError: redis://***@host is away")
        assert "hunter" not in failure.error
        assert await asyncio.to_thread(tasks_services.retry, failure.id, actor=OPERATOR) == (
            "test.fail"
        )
        (again,) = await eventually(
            lambda: [each for each in tasks_services.failed() if each.id != failure.id], READY_S
        )
        assert again.arguments == failure.arguments
        assert len(tasks_services.failed()) == 1, "what was started again is off the list"
    assert tasks_services.running() == []


async def test_a_killed_worker_is_started_again(
    server: RedisServer, spec: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(spec("chain,default", "--beat")) as supervisor:
        await eventually(lambda: "beat" in marks(server), READY_S)
        (child,) = [each.child for each in supervisor._others]
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        server.run("DEL", MARKS)
        # Wait for scheduled tasks: Redis may give a single task sent now to the dead connection,
        # where it is lost.
        await eventually(lambda: "beat" in marks(server), READY_S)
    assert "was ended by SIGKILL; starting it again" in caplog.text


async def test_redis_restarts(
    server: RedisServer, spec: Any, send: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    async with kept(spec("default", "--beat")):
        await eventually(lambda: "beat" in marks(server), READY_S)
        server.kill()
        server.restart()
        server.run("DEL", MARKS)
        await eventually(lambda: "beat" in marks(server), RECONNECT_S, "the schedule goes on")
        server.stop()
        server.restart()
        send("test.note", "again")
        await eventually(lambda: "again" in marks(server), RECONNECT_S, "tasks are taken")
    told = capfd.readouterr().err
    assert "Connection to broker lost" in told
    for noise in ("Traceback", "DeprecationWarning", "unregistered"):
        assert noise not in told


async def test_a_stop_ends_long_tasks_in_time(server: RedisServer, spec: Any, send: Any) -> None:
    async with kept(spec("default", "--beat")):
        send("test.linger", 60)
        await eventually(lambda: any("linger" in mark for mark in marks(server)), READY_S)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert "ended" in marks(server)
    send("test.note", "later")
    async with kept(spec("default")):
        await eventually(lambda: "later" in marks(server), READY_S)


async def test_a_stop_while_redis_is_away(server: RedisServer, spec: Any) -> None:
    async with kept(spec("default", "--beat")) as supervisor:
        (child,) = [each.child for each in supervisor._others]
        server.stop()
        began = time.monotonic()
    assert time.monotonic() - began < 9
    assert child is not None and not exists(child.pid)


async def test_an_orphan_ends(server: RedisServer, spec: Any, send: Any) -> None:
    child = await Child.spawn(spec("default", "--beat"))
    await asyncio.wait_for(child.ready.wait(), READY_S)
    send("test.linger", 60)
    await eventually(lambda: any("linger" in mark for mark in marks(server)), READY_S)
    os.close(child._lifeline_fd)  # as happens when the parent ends
    child._lifeline_fd = -1
    assert await asyncio.wait_for(child.wait(), 5) == 0
    assert "ended" in marks(server)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379", "redis://localhost:6379/0"),
        ("redis://user:a%2Fb@[::1]:7/3", "redis://user:a%2Fb@[::1]:7/3"),
        ("redis://:secret@host", "redis://:secret@host:6379/0"),
        ("unix:///run/a b.sock?db=2", "redis+socket:///run/a%20b.sock?virtual_host=2"),
    ],
)
def test_every_form_of_redis_url_names_the_broker(url: str, shown: str) -> None:
    assert broker.settings_of(url)["broker_url"] == shown


def test_tls_to_the_broker_is_verified() -> None:
    import ssl

    settings = broker.settings_of("rediss://host:1/0?ssl_ca_certs=ca.pem")
    assert settings["broker_use_ssl"] == {
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ssl_ca_certs": "ca.pem",
    }
