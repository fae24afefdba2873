"""Rows about signing in: many twins at once, and all of them again after a rolling restart."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Sequence
from typing import Any

from proto.rmb.types_pb2 import Envelope
from tests.bench import layout
from tests.bench.bench import GENERATOR_LIMIT, Bench
from tests.bench.figures import Figure, Row
from tests.bench.generators import Generators
from tests.bench.measure import DISTURBED_LIMIT
from tests.bench.rows.queues import span_s
from tests.bench.targets import Target, TargetError
from tests.support.redis_servers import RedisServer

FIRST_TWIN = 10_000
SIGN_INS = 9_000
IN_PROGRESS = 64
RECONNECTING = 10_000
REST_S = 2.0
"""Seconds for work after sign-ins (history, ends of sessions), which counts as their CPU time."""
RESTART_TIMEOUT_S = 60.0
MAIL_BYTES = 256
MAIL_EXPIRES_S = 3_600
WRITTEN_AT_ONCE = 1_000
AT_ONCE = {"RMB_RELAY__DRAIN_S": "0"}
"""Setting with which the old worker closes all its sessions at once, not over five seconds."""


def sign_ins(bench: Bench) -> Row:
    """Compare sign-ins of twins new to the relay, and their next ones, with accepts of B."""
    count = bench.many(SIGN_INS)
    twins = list(range(FIRST_TWIN, FIRST_TWIN + count * bench.runs))
    sets = [twins[index * count : (index + 1) * count] for index in range(bench.runs)]
    samples: dict[str, list[dict[str, Any]]] = {"B": [], "first": [], "again": []}
    with bench.yardstick() as base, bench.relay(twins) as ours:
        for index, some in enumerate(sets):
            order = [(base, "B"), (ours, "first"), (ours, "again")]
            for target, name in order if index % 2 == 0 else [*order[1:], order[0]]:
                with bench.generators() as generators:
                    samples[name].append(_sign_in(target, generators, some))
                time.sleep(REST_S)

    def ratio(name: str) -> float:
        pairs = zip(samples[name], samples["B"], strict=True)
        return float(statistics.median(mine["per_s"] / theirs["per_s"] for mine, theirs in pairs))

    def median(name: str, figure: str) -> float:
        return _median(samples[name], figure)

    figures = [
        Figure("first sign-ins, against unsigned accepts", ratio("first"), "B", must=1.4, goal=3.0),
        Figure("further sign-ins", ratio("again"), "B"),
        Figure("refused, or not answered", sum(s["absent"] for s in samples["first"]), must=0,
               lower_is_better=True),
        Figure("first sign-ins per second", median("first", "per_s")),
        Figure("further sign-ins per second", median("again", "per_s")),
        Figure("B: accepts per second", median("B", "per_s")),
        Figure("server: CPU time of a first sign-in", median("first", "server_us"), "us"),
        Figure("server: CPU time of a further one", median("again", "server_us"), "us"),
        Figure("Redis: CPU time of a first sign-in", median("first", "redis_us"), "us"),
        Figure("B: CPU time of an accept", median("B", "server_us"), "us"),
        Figure("load generators: CPU time each", median("first", "generators_us"), "us"),
    ]  # fmt: skip
    title = f"{count:,} twins sign in, {IN_PROGRESS} at a time"
    return Row("sign-ins", title, figures, samples, _remarks(samples))


def _sign_in(target: Target, generators: Generators, twins: Sequence[int]) -> dict[str, Any]:
    """Sign in twins with tokens made before, and return the figures."""
    shares = generators.share(twins)
    generators.each("prepare", [{"twins": share} for share in shares])
    before = {name: layout.cpu_s(pid) for name, pid in target.roots.items()}
    busy = _Busy(target)
    at_once = IN_PROGRESS // len(shares)
    parts = generators.each(
        "rush", [{"url": target.url, "twins": share, "at_once": at_once} for share in shares]
    )
    disturbed = busy.others(parts)
    time.sleep(REST_S)
    used = {name: layout.cpu_s(pid) - before[name] for name, pid in target.roots.items()}
    span = span_s(parts)
    return {
        "per_s": len(twins) / span,
        "absent": sum(part["absent"] for part in parts),
        "server_us": used["server"] / len(twins) * 1e6,
        "redis_us": used.get("redis", 0.0) / len(twins) * 1e6,
        "generators_us": sum(part["cpu_s"] for part in parts) / len(twins) * 1e6,
        "generator_busy": max(part["cpu_s"] for part in parts) / span,
        "disturbed": disturbed,
    }


class _Busy:
    """Use of the cores by other programs and machines, from now on."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._began_s = time.monotonic()
        self._busy_s = layout.busy_s() - self._own_s()

    def others(self, parts: Sequence[dict[str, Any]]) -> float:
        """Return the cores that others used; the generators that did these parts do not count."""
        own_s = self._own_s() + sum(part["cpu_s"] for part in parts)
        used_s = layout.busy_s() - own_s - self._busy_s
        return max(0.0, float(used_s) / (time.monotonic() - self._began_s))

    def _own_s(self) -> float:
        return float(sum(map(layout.cpu_s, self._target.roots.values())))


def _remarks(samples: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return what a reader must know about these measurements."""
    found = []
    for name, some in samples.items():
        busy = max(sample.get("generator_busy", 0.0) for sample in some)
        if busy > GENERATOR_LIMIT:
            found.append(f"{name}: a load generator was the limit ({busy:.0%} busy)")
        disturbed = max(sample["disturbed"] for sample in some)
        if disturbed > DISTURBED_LIMIT:
            found.append(f"{name}: others used up to {disturbed:.2f} cores meanwhile")
    return found


def reconnect(bench: Bench) -> Row:
    """Measure a rolling restart: it cuts all clients, which reconnect at once.

    A message is waiting for each. These are written once all clients are cut, as other programs
    write into queues: before that they would be delivered to the connections that are about to end.
    """
    count = bench.many(RECONNECTING)
    twins = list(range(FIRST_TWIN, FIRST_TWIN + count))
    samples = []
    with bench.relay(twins, AT_ONCE) as ours, bench.generators() as generators:
        shares = generators.share(twins)
        generators.each("prepare", [{"twins": share} for share in shares])
        at_once = IN_PROGRESS // len(shares)
        parts = generators.each(
            "rush", [{"url": ours.url, "twins": share, "at_once": at_once} for share in shares]
        )
        if any(part["absent"] for part in parts):
            raise TargetError("the clients could not sign in before the restart")
        for number in range(bench.runs):
            time.sleep(REST_S)
            samples.append(_restart(ours, generators, shares, number))
    figures = [
        Figure("from the restart to the last message", _median(samples, "all_s"), "s", must=8,
               goal=4, lower_is_better=True),
        Figure("slowest", max(sample["all_s"] for sample in samples), "s"),
        Figure("until all are cut", _median(samples, "cut_s"), "s"),
        Figure("from the first connect to the last sign-in", _median(samples, "signed_in_s"), "s"),
        Figure("from the first connect to the last message", _median(samples, "mail_s"), "s"),
        Figure("lost", sum(sample["lost"] for sample in samples), must=0, lower_is_better=True),
        Figure("doubled", sum(sample["doubled"] for sample in samples), must=0,
               lower_is_better=True),
        Figure("not signed in", sum(sample["absent"] for sample in samples), must=0,
               lower_is_better=True),
        Figure("server: CPU time of a restart", _median(samples, "server_s"), "s"),
        Figure("Redis: CPU time of a restart", _median(samples, "redis_s"), "s"),
        Figure("load generators: CPU time of a restart", _median(samples, "generators_s"), "s"),
    ]  # fmt: skip
    title = f"{count:,} clients reconnect after a rolling restart, with mail"
    return Row("reconnect", title, figures, {"ours": samples}, _remarks({"ours": samples}))


def _restart(
    target: Target, generators: Generators, shares: Sequence[Sequence[int]], number: int
) -> dict[str, Any]:
    """Measure one rolling restart."""
    assert target.redis is not None
    before = {name: layout.cpu_s(pid) for name, pid in target.roots.items()}
    busy = _Busy(target)
    began_ns = time.perf_counter_ns()
    os.kill(target.process.pid, signal.SIGHUP)
    if sum(generators.all("rush_closed", timeout_s=RESTART_TIMEOUT_S)):
        raise TargetError("the restart did not cut all clients")
    cut_ns = time.perf_counter_ns()
    mail = [_write_mail(target.redis, share, number) for share in shares]
    parts = generators.each(
        "rush",
        [
            {"url": target.url, "twins": share, "mail": own}
            for share, own in zip(shares, mail, strict=True)
        ],
    )
    ended_ns = max(part["ended_ns"] for part in parts)
    disturbed = busy.others(parts)
    connect_ns = min(part["began_ns"] for part in parts)
    signed_in_ns = max(part["signed_in_ns"] for part in parts)
    used = {name: layout.cpu_s(pid) - before[name] for name, pid in target.roots.items()}
    return {
        "all_s": (ended_ns - began_ns) / 1e9,
        "cut_s": (cut_ns - began_ns) / 1e9,
        "signed_in_s": (signed_in_ns - connect_ns) / 1e9,
        "mail_s": (ended_ns - connect_ns) / 1e9,
        "server_s": used["server"],
        "redis_s": used["redis"],
        "generators_s": sum(part["cpu_s"] for part in parts),
        "lost": sum(part["lost"] for part in parts),
        "doubled": sum(part["doubled"] + part["strays"] for part in parts),
        "absent": sum(part["absent"] for part in parts),
        "disturbed": disturbed,
    }


def _write_mail(redis: RedisServer, twins: Sequence[int], number: int) -> dict[str, int]:
    """Write a message into the queue of each twin; return the twin of each uid."""
    mail = {f"{number}-{twin}": twin for twin in twins}
    now = int(time.time())
    with redis.client() as client, client.pipeline(transaction=False) as pipeline:
        for written, (uid, twin) in enumerate(mail.items(), 1):
            envelope = Envelope(uid=uid, timestamp=now, expiration=MAIL_EXPIRES_S)
            envelope.source.twin = envelope.destination.twin = twin
            envelope.request.command = "bench.mail"
            envelope.plain = bytes(MAIL_BYTES)
            pipeline.xadd(f"stream:{twin}", {"_": envelope.SerializeToString()})
            if written % WRITTEN_AT_ONCE == 0:
                pipeline.execute()
        pipeline.execute()
    return mail


def _median(samples: Sequence[dict[str, Any]], name: str) -> float:
    return float(statistics.median(sample[name] for sample in samples))
