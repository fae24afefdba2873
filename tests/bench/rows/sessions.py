"""Rows about many sessions: memory and log-ins, slow readers, idle sessions beside busy ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tests.bench import layout
from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.generators import Generators
from tests.bench.measure import Sample, median_ratio
from tests.bench.rows.queues import span_s
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target
from tests.support.redis_servers import RedisServer

FIRST_IDLE_TWIN = 10_000
IDLE_SESSIONS = 10_000
LOG_INS = 2_000
SLOW_READERS = 2_000
SLOW_SENDERS = 8
SLOW_PAYLOAD_BYTES = 4_096
SLOW_MESSAGES = 320
"""Messages per slow reader: 256 or 1 MiB fill its session, the rest fills the kernel's buffers."""
PATIENCE = {"RMB_RELAY__BACK_PRESSURE_S": "3600", "RMB_RELAY__IDLE_TIMEOUT_S": "3600"}
"""Settings that keep sessions open: by default a full one is closed after a minute, and one that
sends nothing after two."""
REWRITE_TIMEOUT_S = 60.0
REST_S = 2.0
"""Seconds for work after a sign-in or a flood to end before memory is read."""

Turns = tuple[list[Sample], list[Sample]]
"""Samples of the relay with a crowd and of the one without, each pair measured in succession."""


def open_bare(
    target: Target, generators: Generators, twins: list[int], slow: bool = False, signs: bool = True
) -> float:
    """Sign in bare clients (those of SBD may only begin to); return how many per second."""
    shares = generators.share(twins)
    generators.each("prepare", [{"twins": share, "protocol": target.protocol} for share in shares])
    options = {"url": target.url, "slow": slow, "protocol": target.protocol, "signs": signs}
    parts = generators.each("stay", [{"twins": share, **options} for share in shares])
    return len(twins) / span_s(parts)


def worker_memory(target: Target) -> int:
    """Return the resident bytes of the workers after a moment of rest."""
    time.sleep(REST_S)
    if target.redis is not None:
        _wait_for_rewrite(target.redis)
    return sum(layout.resident_bytes(pid) for pid in target.worker_pids)


def _wait_for_rewrite(redis: RedisServer) -> None:
    """Wait while Redis rewrites its append-only file, as it does after a flood."""
    deadline = time.monotonic() + REWRITE_TIMEOUT_S
    with redis.client() as client:
        while client.info("persistence")["aof_rewrite_in_progress"] and time.monotonic() < deadline:
            time.sleep(REST_S / 10)


def idle(bench: Bench) -> Row:
    """Compare the memory of idle sessions, and log-ins per second, with those of B."""
    count = bench.many(IDLE_SESSIONS)
    twins = list(range(FIRST_IDLE_TWIN, FIRST_IDLE_TWIN + count))
    memory_kib: dict[str, float] = {}
    log_ins: dict[str, list[float]] = {"ours": [], "B": []}
    kept = 0
    with bench.yardstick() as base, bench.relay(twins) as ours:
        for target in (base, ours):
            with bench.generators() as generators:
                before = worker_memory(target)
                open_bare(target, generators, twins)
                memory_kib[target.name] = (worker_memory(target) - before) / count / 1024
                if target is ours:
                    kept = sum(generators.all("still_there"))
            time.sleep(REST_S)
        for _ in range(bench.runs):
            for target in (base, ours):
                with bench.generators() as generators:
                    some = twins[: min(count, LOG_INS)]
                    log_ins[target.name].append(open_bare(target, generators, some))
                time.sleep(REST_S)
    ratio = statistics.median(
        mine / theirs for mine, theirs in zip(log_ins["ours"], log_ins["B"], strict=True)
    )
    figures = [
        Figure(
            "worker memory each", memory_kib["ours"], "KiB", must=14, goal=10, lower_is_better=True
        ),
        Figure("signed log-ins, against unsigned accepts", ratio, "B", must=0.7),
        Figure("sessions still open", kept, must=count),
        Figure("B: worker memory each", memory_kib["B"], "KiB"),
        Figure("ours: log-ins per second", statistics.median(log_ins["ours"])),
        Figure("B: accepts per second", statistics.median(log_ins["B"])),
    ]
    return Row("idle", f"{count:,} idle connections, and log-ins", figures)


@dataclass(frozen=True)
class Crowd:
    """Sessions that stay open while others work; `senders` flood them first."""

    twins: list[int]
    senders: list[int]

    @property
    def known(self) -> list[int]:
        """All twins that the relay has to know."""
        return [*self.twins, *self.senders]

    def gather(self, target: Target, generators: Generators) -> None:
        """Sign in the sessions, and fill their queues."""
        open_bare(target, generators, self.twins, slow=bool(self.senders))
        if self.senders:
            _flood(target, generators, self.twins, self.senders)


def slow_crowd(bench: Bench) -> Crowd:
    """Return readers that stop reading, and get more than their sessions can hold."""
    first_sender = FIRST_IDLE_TWIN + bench.many(SLOW_READERS)
    return Crowd(
        list(range(FIRST_IDLE_TWIN, first_sender)),
        list(range(first_sender, first_sender + SLOW_SENDERS)),
    )


def idle_crowd(bench: Bench) -> Crowd:
    """Return sessions that do nothing."""
    return Crowd(list(range(FIRST_IDLE_TWIN, FIRST_IDLE_TWIN + bench.many(IDLE_SESSIONS))), [])


def slow(bench: Bench) -> Row:
    """Compare the first row beside readers that stop reading, with full queues, and without."""
    crowd = slow_crowd(bench)
    count = len(crowd.twins)
    with _two_relays(bench, crowd) as (ours, other), bench.generators() as generators:
        before = _turns(bench, ours, other, generators)
        memory = worker_memory(ours)
        crowd.gather(ours, generators)
        growth_kib = (worker_memory(ours) - memory) / count / 1024
        beside_it = _turns(bench, ours, other, generators)
        kept = sum(generators.all("still_there"))
        waiting = _waiting(ours, crowd.twins)
    row = _disturbed("slow", f"{count:,} slow readers", before, beside_it, must=0.9)
    row.figures[1:1] = [
        Figure("worker memory more, each", growth_kib, "KiB", must=1024, lower_is_better=True),
        Figure("slow sessions still open", kept, must=count),
        Figure("entries waiting per slow reader", waiting),
    ]
    return row


def _flood(target: Target, generators: Generators, readers: list[int], senders: list[int]) -> None:
    """Send every slow reader more than its session holds."""
    own_senders = generators.share(senders)
    pairs = [
        [(own[index % len(own)], reader) for index, reader in enumerate(share)]
        for own, share in zip(own_senders, generators.share(readers), strict=True)
    ]
    generators.each("connect", [{"url": target.url, "twins": own} for own in own_senders])
    generators.each(
        "flows", [{"pairs": own, "payload_size_bytes": SLOW_PAYLOAD_BYTES} for own in pairs]
    )
    generators.all("bulk", messages=SLOW_MESSAGES)
    generators.each("leave", [{"twins": own} for own in own_senders])


def _waiting(target: Target, readers: list[int]) -> float:
    """Return the median length of the slow readers' streams."""
    assert target.redis is not None
    with target.redis.client() as client:
        return statistics.median(client.xlen(f"stream:{twin}") for twin in readers)


def beside(bench: Bench) -> Row:
    """Compare the first row beside idle sessions and without."""
    crowd = idle_crowd(bench)
    count = len(crowd.twins)
    with _two_relays(bench, crowd) as (ours, other), bench.generators() as generators:
        before = _turns(bench, ours, other, generators)
        crowd.gather(ours, generators)
        beside_it = _turns(bench, ours, other, generators)
        kept = sum(generators.all("still_there"))
    row = _disturbed("beside", f"{count:,} idle sessions", before, beside_it, must=0.95)
    row.figures[1:1] = [Figure("idle sessions still open", kept, must=count)]
    return row


@contextmanager
def _two_relays(bench: Bench, crowd: Crowd) -> Iterator[tuple[Target, Target]]:
    """Run a relay for the crowd, and one to compare it with."""
    twins = [*FIRST_ROW.twins, *crowd.known]
    with bench.relay(twins, PATIENCE) as ours, bench.relay(twins, PATIENCE) as other:
        yield replace(ours, name="with"), replace(other, name="without")


def _turns(bench: Bench, ours: Target, other: Target, generators: Generators) -> Turns:
    """Measure the first row on both relays alternately: twice as many runs, each half as long."""
    short = replace(bench, runs=2 * bench.runs, seconds=bench.seconds / 2)
    return short.compare(ours, other, generators, FIRST_ROW)


def _disturbed(name: str, crowd: str, before: Turns, beside_it: Turns, must: float) -> Row:
    """Return how much of its rate the first row keeps beside a crowd.

    This is the ratio of its relay to another one without a crowd, divided by the same ratio before
    the crowd came: two relays that do not differ otherwise may differ by a tenth in speed.
    """

    def per_cpu(turns: Turns) -> float:
        return median_ratio(*turns, lambda sample: sample.messages_per_cpu_s)

    figures = [
        Figure("the first row keeps", rate_ratio(*beside_it) / rate_ratio(*before), must=must),
        Figure("messages per CPU second", per_cpu(beside_it) / per_cpu(before), "of that without"),
        Figure("before the crowd", rate_ratio(*before), "of the other relay"),
        *described("before", before[0]),
        *described("with", beside_it[0]),
        *described("without", beside_it[1]),
        faults([*before[0], *before[1], *beside_it[0], *beside_it[1]]),
    ]
    samples = as_json(
        before=before[0],
        before_without=before[1],
        **{"with": beside_it[0], "without": beside_it[1]},
    )
    title = f"the first row with {crowd}, beside the same without"
    return Row(name, title, figures, samples, remarks(*before, *beside_it))
