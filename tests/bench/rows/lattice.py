"""Rows about lattice calls, compared with raw nats-py, calls through a bridge, and the monitor."""

from __future__ import annotations

import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lattice.embedded import EmbeddedNats
from lattice.monitor.judge import Judge, View
from proto.lattice import state
from proto.lattice.bounds import JTI_CHARS
from proto.lattice.entity import Entity
from proto.lattice.invocation import make
from proto.lattice.nkeys import KeyKind, KeyPair
from proto.lattice.policy import Direction
from proto.lattice.subjects import rpc_subject
from tests.bench import layout
from tests.bench import twins as bench_twins
from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.generators import GeneratorProcess
from tests.bench.lattice.program import ACTOR, CLUSTER, OPERATION, PAYLOAD, PROVIDER_KEY
from tests.bench.measure import side_by_side
from tests.bench.rows.client import BODY_BYTES, CALLER, OUTSTANDING, SERVER, programs
from tests.bench.targets import Target, TargetError

KINDS = ("ours", "raw")
MILLION = 1_000_000
MONITOR_CHUNK = 20_000
HOST = KeyPair.of_random(KeyKind.HOST, bytes(range(32))).public
BRIDGE = bench_twins.FIRST_TWIN + 5_002
BOUNDS = {100: (0.2, 0.35), 1: (0.5, 0.75)}
"""Bounds (must, goal) by number of calls at once."""
_COMMAND = [sys.executable, "-m", "tests.bench.lattice.program"]


@contextmanager
def _server(kind: str, url: str) -> Iterator[int]:
    """Serve calls, and yield the id of the process."""
    with layout.on_cores(layout.layout().server):
        server = subprocess.Popen(
            [*_COMMAND, "serve", kind, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    assert server.stdin is not None and server.stdout is not None
    try:
        if not server.stdout.readline():
            raise TargetError(f"the server of {kind} did not start")
        yield server.pid
    finally:
        server.stdin.close()
        _end(server)
        server.stdout.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _pair(kind: str, url: str) -> Iterator[GeneratorProcess]:
    with _server(kind, url), layout.on_cores(layout.layout().server):
        client = GeneratorProcess(None, command=_COMMAND)
        try:
            client.call("open", kind=kind, url=url)
            yield client
        finally:
            client.close()


@contextmanager
def _bridge(relay: Target, nats_url: str, sheet: Path) -> Iterator[int]:
    """Run a bridge between the twins of a relay and a lattice; yield the id of its process."""
    assert relay.redis is not None
    policy = {"name": "bench", "direction": Direction.TO_LATTICE, "per_s": 0}
    policy |= dict.fromkeys(("twins", "entities", "names"), "*")
    with relay.redis.client() as redis:
        redis.set(state.POLICIES, json.dumps([policy]))
    reading, writing = os.pipe()
    document = {
        "kind": "bridge",
        "logging": {"version": 1},
        "redis_url": relay.redis.unix_url,
        "options": {"servers": [nats_url], "cluster_seed": CLUSTER.seed},
        "provider_seed": PROVIDER_KEY.seed,
        "link_name": "default",
        "twin_secret": bench_twins.secret(BRIDGE),
        "relays": [relay.url],
        "twins": str(sheet),
        "substrate": [],
        "ready_fd": writing,
    }
    with layout.on_cores(layout.layout().server):
        process = subprocess.Popen(
            [sys.executable, "-m", "lattice.process"], stdin=subprocess.PIPE, pass_fds=(writing,)
        )
    os.close(writing)
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(document).encode())
        process.stdin.close()
        with open(reading) as ready:
            if not ready.readline():
                raise TargetError("the bridge did not start")
        yield process.pid
    finally:
        process.terminate()
        _end(process)


def calls(bench: Bench) -> Row:
    """Compare our caller and provider with raw requests."""
    figures: list[Figure] = []
    samples: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmbb-")))
        with layout.on_cores(layout.layout().server):
            nats = stack.enter_context(EmbeddedNats(folder))
        clients = {kind: stack.enter_context(_pair(kind, nats.url)) for kind in KINDS}
        for workers, (must, goal) in BOUNDS.items():
            found: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for number in range(bench.runs):
                for kind in reversed(KINDS) if number % 2 else KINDS:
                    run = {"kind": "calls", "workers": workers, "seconds": bench.seconds}
                    sample = clients[kind].call("run", **run)
                    found[kind].append(sample["count"] / sample["wall_s"])
            pairs = zip(found["ours"], found["raw"], strict=True)
            ratio = statistics.median(ours / raw for ours, raw in pairs)
            figures.append(Figure(f"{workers} at once", ratio, "of raw nats-py", must, goal))
            for kind in KINDS:
                text = f"{kind}: {workers} at once"
                figures.append(Figure(text, statistics.median(found[kind]), "/s"))
                samples[text] = [{"calls_per_s": per_s} for per_s in found[kind]]
    figures.sort(key=lambda figure: figure.must is None)
    return Row("lattice-calls", f"lattice: calls with {len(PAYLOAD)} B", figures, samples)


def bridge(bench: Bench) -> Row:
    """Compare a twin's calls through bridge and NATS to an actor with calls to another twin."""
    twins = (CALLER, SERVER, BRIDGE)
    with ExitStack() as stack:
        relay = stack.enter_context(bench.relay(twins))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmbb-")))
        sheet = bench_twins.sheet(folder, twins)
        with layout.on_cores(layout.layout().server):
            nats = stack.enter_context(EmbeddedNats(folder))
        others = (
            nats.pid,
            stack.enter_context(_server("actor", nats.url)),
            stack.enter_context(_bridge(relay, nats.url, sheet)),
        )
        direct = stack.enter_context(programs(relay, sheet))
        bridged = replace(
            direct, twin=BRIDGE, command=f"lattice.{ACTOR}.{OPERATION}", others=others
        )
        mine, theirs = side_by_side(
            [bridged, direct],
            bench.runs,
            lambda pair: pair.measure(bench.seconds),
            bench.most_rounds,
        )
    return Row(
        "lattice-bridge",
        f"twin to actor and back, {OUTSTANDING} outstanding, {BODY_BYTES} B",
        [
            Figure("rate", rate_ratio(mine, theirs), "of twin to twin", 0.5, 0.8),
            faults(mine),
            *described("bridge", mine),
            *described("twin to twin", theirs),
        ],
        as_json(bridge=mine, twins=theirs),
        remarks(mine, theirs),
    )


def monitor(bench: Bench) -> Row:
    """Measure one core judging honest invocations; none may be flagged."""
    count = bench.many(MILLION)
    target = Entity.provider(PROVIDER_KEY.public, "default", "bench:echo")
    judge = Judge("default", [CLUSTER.public])
    judge.view = View(
        registered={ACTOR, PROVIDER_KEY.public},
        hosts={HOST: {ACTOR}},
        links={(ACTOR, PROVIDER_KEY.public, "default")},
    )
    subject = rpc_subject("default", target)
    rates: list[float] = []
    flagged, left = 0, count
    while left:
        bodies = [_invocation(target) for _ in range(min(left, MONITOR_CHUNK))]
        left -= len(bodies)
        now, began_s = time.time(), time.process_time()
        flagged += sum(judge.judge(subject, body, now)[1] is not None for body in bodies)
        rates.append(len(bodies) / (time.process_time() - began_s))
    return Row(
        "lattice-monitor",
        f"lattice: {count:,} honest invocations with {len(PAYLOAD)} B before the monitor",
        [
            Figure("rate", statistics.median(rates), "/s on one core", 8_000, 15_000),
            Figure("false alarms", flagged, must=0, lower_is_better=True),
        ],
        {"chunks": [{"per_cpu_s": per_s} for per_s in rates]},
    )


def _invocation(target: Entity) -> bytes:
    token = secrets.token_hex(16)
    invocation = make(
        Entity.actor(ACTOR),
        target,
        OPERATION,
        PAYLOAD,
        host_id=HOST,
        cluster=CLUSTER,
        invocation_id=token,
        jti=token[:JTI_CHARS],
        iat=int(time.time()),
    )
    return invocation.encode()
