"""Tests of the monitor and NATS server processes, run within the test process."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from lattice.connection import LatticeConnection
from lattice.errors import EmbeddedError
from lattice.monitor.judge import Judge, View
from lattice.monitor.main import Bridges, MonitorError, run
from lattice.nats import run as run_nats
from lattice.options import LatticeOptions
from proto.lattice import state
from proto.lattice.entity import Entity
from proto.lattice.errors import Reason
from proto.lattice.nkeys import KeyKind, KeyPair
from proto.rmb.repeats import Repeats
from tests.lattice.test_judge import ACTOR, CLUSTER, HOST, NOW, PROVIDER, invocation
from tests.support.lattice_host import ControlHost
from tests.support.lattice_state import report
from tests.support.redis_servers import RedisServer, free_port
from tests.support.waiting import eventually


async def started(work: Any) -> tuple[asyncio.Task[None], asyncio.Event]:
    """Run a process of the lattice, and return once it is ready."""
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(work(stop, ready.set))
    waiting = asyncio.create_task(ready.wait())
    async with asyncio.timeout(60):
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        await task
    return task, stop


async def test_findings_of_a_lattice(options: LatticeOptions, valkey: RedisServer) -> None:
    options = dataclasses.replace(options, issuers=(CLUSTER.public,), iat_window_s=0)
    settings = {
        "options": dataclasses.asdict(options),
        "redis_url": valkey.url,
        "subject": "mirror",
        "direct": False,
        "hosts": [],
    }
    task, stop = await started(lambda stop, ready: run(settings, stop, ready))
    async with LatticeConnection(options) as connection:
        host = ControlHost(connection)
        host.claims += [{"sub": ACTOR.public}, {"sub": PROVIDER.public}]
        await host.start()
        good = invocation()
        for _, data in (good, good, (good[0], b"garbage"), invocation(1, host_id=HOST.public)):
            subject = good[0].replace(".default.", f".{options.lattice}.", 1)
            await connection.publish(f"mirror.{subject}", data)
        await connection.flush()

        def found() -> list[Any]:
            raw = valkey.run("XLEN", state.FINDINGS)
            return [raw] if int(raw) >= 2 else []

        await eventually(found)
    stop.set()
    await task
    rows = valkey.run("XRANGE", state.FINDINGS, "-", "+")
    reasons = Counter(json.loads(fields[b"finding"])["reason"] for _, fields in rows)
    assert reasons[Reason.UNDECODABLE] == 1 and reasons[Reason.REPLAY] == 1


async def test_bridges_and_named_hosts_are_known(valkey: RedisServer) -> None:
    actor = KeyPair.of_random(KeyKind.ACTOR, b"b" * 32)  # TEST KEY
    report(valkey, "bridge", actor=actor.public, provider="V", host_ids=[HOST.public])
    report(valkey, "bridge", "of another version")
    subject, data = invocation(origin=Entity.actor(actor.public))
    judge = Judge("default", [CLUSTER.public])

    def verdict(view: View) -> Reason | None:
        judge.view = view
        judge._seen = Repeats(10)
        finding = judge.judge(subject, data, NOW)[1]
        return None if finding is None else finding.reason

    async with Redis.from_url(valkey.url) as redis:
        bridges = Bridges(redis, ())
        assert verdict(bridges.joined(View(registered=set()))) is Reason.ORIGIN_UNKNOWN
        assert verdict(bridges.joined(View(hosts={}))) is Reason.HOST_UNKNOWN
        named = Bridges(redis, [HOST.public])
        assert verdict(named.joined(View(hosts={}))) is None
        await bridges.look()
        assert verdict(bridges.joined(View(registered=set(), hosts={}))) is None


async def test_a_monitor_with_nothing_to_read(options: LatticeOptions, valkey: RedisServer) -> None:
    settings = {
        "options": dataclasses.asdict(options),
        "redis_url": valkey.url,
        "subject": "",
        "direct": False,
        "hosts": [],
    }
    with pytest.raises(MonitorError, match=r"lattice\.monitor_subject"):
        await run(settings, asyncio.Event(), lambda: None)


async def test_the_server_of_an_embedded_relay(tmp_path: Path) -> None:
    settings = {"folder": str(tmp_path / "nats"), "listen": f"127.0.0.1:{free_port()}"}
    task, stop = await started(lambda stop, ready: run_nats(settings, stop, ready))
    options = LatticeOptions(servers=(f"nats://{settings['listen']}",))
    async with LatticeConnection(options) as connection:
        await connection.jetstream()
        other = {**settings, "folder": str(tmp_path / "other")}
        with pytest.raises(EmbeddedError, match="ended; see"):
            await run_nats(other, asyncio.Event(), lambda: None)
    stop.set()
    await task
    for listen in ("0.0.0.0:4222", "127.0.0.1", "127.0.0.1:x"):
        with pytest.raises(EmbeddedError, match="must be 127"):
            await run_nats({**settings, "listen": listen}, asyncio.Event(), lambda: None)
