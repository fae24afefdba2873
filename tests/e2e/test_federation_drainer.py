"""The outbox drained by a real Celery worker: started by the schedule, killed, restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relay.queues import keys
from relay.queues.held import pack
from relay.server.child import ChildSpec
from relay.server.supervisor import Supervisor
from tests.support.children import children
from tests.support.envelopes import request
from tests.support.partner_server import PartnerServer, partner
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import run_command
from tests.support.waiting import eventually

TWIN = 5001
HOLDER = "test"
ASKER = 1001


@pytest.fixture
def data_dir(data_template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(data_template, tmp_path / "data"))


def add_twins(data_dir: Path, numbers: Iterable[int], *relays: str) -> None:
    """Add twins to the relay's registry."""
    rows = [f"{number},0x{number:064x},,{'_'.join(relays)}\n" for number in numbers]
    source = data_dir.parent / "more.csv"
    source.write_text("".join(["id,account,pk,relays\n", *rows]))
    settings = {"redis.url": "redis://127.0.0.1:1"}
    done = run_command(data_dir.parent, "rmb_twin", "import", str(source), settings=settings)
    assert done.returncode == 0, done.stderr


def put(server: RedisServer, twin: int, account: str, uid: str, **more: Any) -> None:
    """Write an outbox entry for one message, as a worker does."""
    payload = request((ASKER, None), (twin, None), uid=uid, **more).SerializeToString()
    with contextlib.closing(server.client()) as client:
        pipe = client.pipeline(transaction=True)
        fields = {"_": payload, "from": str(ASKER), "for": account}
        pipe.xadd(keys.outbox(twin), fields)
        for field in ("total", str(ASKER)):
            pipe.hincrby(keys.held(account), field, pack(1, len(payload)))
        pipe.execute()


Worker = Callable[[], contextlib.AbstractAsyncContextManager[Supervisor]]


@pytest.fixture
def worker(start_server: Callable[..., RedisServer], data_dir: Path) -> Any:
    """Return a starter of Celery workers that drain the outbox of one Redis."""
    server = start_server(append_fsync="no")

    @contextlib.asynccontextmanager
    async def run() -> AsyncIterator[Supervisor]:
        environment = {
            "RMB_REDIS__URL": server.unix_url,
            "RMB_DATA__DIR": str(data_dir),
            "RMB_TWINS__SOURCE": "registry",
            "RMB_RELAY__DOMAINS": "localhost",
            "RMB_FEDERATION__SCHEME": "http",
            "RMB_FEDERATION__ALLOW_PRIVATE": "true",
        }
        arguments = (
            *("--queues", "federation,default", "--threads", "8"),
            *("--holder", HOLDER, "--beat"),
        )
        spec = ChildSpec(
            "Celery",
            "relay.server.celery_main",
            arguments,
            environment=environment,
            stop_grace_s=15.0,
            vital=False,
        )
        supervisor = Supervisor()
        async with supervisor.handling_signals(), asyncio.timeout(120):
            await supervisor.keep(spec)
            yield supervisor

    run.server = server  # type: ignore[attr-defined]
    return run


async def settled(server: RedisServer, twin: int) -> None:
    await eventually(lambda: server.run("XLEN", keys.outbox(twin)) == 0)


async def test_a_message_leaves_through_the_task(worker: Any, data_dir: Path) -> None:
    server: RedisServer = worker.server
    async with partner() as other:
        add_twins(data_dir, [TWIN], other.domain)
        put(server, TWIN, other.domain, "first")
        async with worker():
            await eventually(lambda: other.uids == ["first"])
            await settled(server, TWIN)
            # The drainer runs now and blocks in Redis.
            for number in range(20):
                put(server, TWIN, other.domain, f"next-{number}")
            await eventually(lambda: len(other.uids) == 21)
            await settled(server, TWIN)
        check_single_form(other)
        assert other.uids == ["first", *(f"next-{number}" for number in range(20))]
        assert not server.run("EXISTS", keys.held(other.domain))
        assert not server.run("EXISTS", keys.lease(TWIN % keys.OUTBOX_SHARDS))
        assert server.run("HGET", keys.partner(other.domain), "sent") == b"21"
        assert server.run("HGET", keys.FEDERATION_COUNTERS, f"success|{other.domain}") == b"21"


def check_single_form(other: PartnerServer) -> None:
    """Check that requests have the reference's form, and name this relay and the delivery."""
    for each in other.requests:
        assert each.path == "/"
        assert each.headers["content-type"] == "application/octet-stream"
        assert each.headers["rmb-relay"] == "localhost"
        assert "retry" not in each.headers["rmb-delivery"]
        assert each.headers["host"] == other.domain


def worker_pid() -> int:
    """Return the process id of the Celery worker, which is a child of this process.

    Celery workers of relays are not children of this process.
    """
    (found,) = children("relay.server.celery_main")
    return found.pid


def came(other: PartnerServer, requests: int) -> bool:
    """Check whether another request has arrived."""
    return len(other.requests) > requests


@pytest.mark.parametrize("offers", [True, False])
async def test_a_killed_worker_loses_and_doubles_nothing(
    worker: Any, data_dir: Path, offers: bool
) -> None:
    """After SIGKILL during requests, a successor sends again what may have been accepted.

    No message is lost or duplicated.
    """
    server: RedisServer = worker.server
    async with partner(offers) as other:
        twins = [TWIN + 8 * number for number in range(10)]
        add_twins(data_dir, twins, other.domain)
        put(server, TWIN, other.domain, "opens")
        async with worker():
            await eventually(lambda: other.uids == ["opens"])
            pid = worker_pid()
            sent = 0
            while sent < 1000:
                for twin in twins:
                    put(server, twin, other.domain, f"{sent}")
                    sent += 1
                if sent == 500:
                    other.gate.clear()
                    requests = len(other.requests)
                    put(server, TWIN, other.domain, f"{sent}")
                    sent += 1
                    await eventually(partial(came, other, requests))
                    os.kill(pid, signal.SIGKILL)
                    other.gate.set()
            # The supervisor and the schedule start the successor.
            await eventually(lambda: len(set(other.uids)) == sent + 1, 60.0)
            for shard in {twin % keys.OUTBOX_SHARDS for twin in twins}:
                await settled(server, shard)
        assert any(each.retry for each in other.messages)
        assert not server.run("EXISTS", keys.held(other.domain))
        for twin in twins:
            got = [int(e.uid) for e in other.taken[1:] if e.destination.twin == twin]
            assert got == sorted(set(got)), "in order, and each once by its id"


async def test_the_lease_of_a_killed_worker_is_not_waited_for(worker: Any, data_dir: Path) -> None:
    """The successor takes over the dead worker's lease, and respects leases of other holders."""
    server: RedisServer = worker.server
    mine, others = keys.lease(TWIN % keys.OUTBOX_SHARDS), keys.lease((TWIN + 1) % 8)
    async with partner() as other:
        add_twins(data_dir, [TWIN, TWIN + 1], other.domain)
        put(server, TWIN, other.domain, "first")
        async with worker():
            await eventually(lambda: other.uids == ["first"])
            token = server.run("GET", mine)
            assert token.startswith(HOLDER.encode() + b"/")
            os.kill(worker_pid(), signal.SIGKILL)
            for lease, value in ((mine, token), (others, b"somebody/else")):
                server.run("SET", lease, value, "EX", 600)
                put(server, TWIN + (lease == others), other.domain, f"held by {value.decode()}")
            await eventually(lambda: len(other.uids) == 2, 60.0)
            assert other.uids[1] == f"held by {token.decode()}"
            assert server.run("GET", others) == b"somebody/else"


async def test_redis_and_with_it_the_broker_restarts(worker: Any, data_dir: Path) -> None:
    server: RedisServer = worker.server
    async with partner() as other:
        add_twins(data_dir, [TWIN], other.domain)
        put(server, TWIN, other.domain, "first")
        async with worker():
            await eventually(lambda: other.uids == ["first"])
            server.kill()
            server.restart()
            put(server, TWIN, other.domain, "second")
            await eventually(lambda: other.uids == ["first", "second"], 60.0)
            await settled(server, TWIN)


async def test_what_the_reference_relay_left_is_delivered(worker: Any, data_dir: Path) -> None:
    server: RedisServer = worker.server
    async with partner() as other:
        add_twins(data_dir, [TWIN], other.domain)
        for number in range(3):
            payload = request((ASKER, "s"), (TWIN, None), uid=f"{number}").SerializeToString()
            server.run("XADD", keys.REFERENCE_OUTBOX, "*", "_", payload)
        server.run("XADD", keys.REFERENCE_OUTBOX, "*", "_", b"\xff")
        async with worker():
            await eventually(lambda: other.uids == ["0", "1", "2"])
            await settled(server, TWIN)
        assert server.run("XLEN", keys.REFERENCE_OUTBOX) == 0
        assert not server.run("KEYS", keys.held("*"))
