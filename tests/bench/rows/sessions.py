"""Rows about many sessions: memory and log-ins, slow readers, idle ones beside busy ones."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace

from tests.bench import layout
from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.generators import Generators
from tests.bench.measure import median_ratio
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
"""Per slow reader: 256 messages or 1 MiB fill its session, the rest covers the kernel's buffers."""
PATIENCE = {"RMB_RELAY__BACK_PRESSURE_S": "3600", "RMB_RELAY__IDLE_TIMEOUT_S": "3600"}
"""A full session is closed after a minute, one that sends nothing after two: here they stay."""
REWRITE_TIMEOUT_S = 60.0
REST_S = 2.0
"""Time for what follows a sign-in or a flood to end before memory is read."""


def open_bare(
    target: Target, generators: Generators, twins: list[int], slow: bool = False
) -> float:
    """Sign bare clients in; returns sign-ins per second."""
    shares = generators.share(twins)
    generators.each("prepare", [{"twins": share} for share in shares])
    parts = generators.each(
        "stay", [{"url": target.url, "twins": share, "slow": slow} for share in shares]
    )
    return len(twins) / span_s(parts)


def worker_memory(target: Target) -> int:
    """Resident bytes of the worker after a moment of rest."""
    time.sleep(REST_S)
    if target.redis is not None:
        _wait_for_rewrite(target.redis)
    return sum(layout.resident_bytes(pid) for pid in target.worker_pids)


def _wait_for_rewrite(redis: RedisServer) -> None:
    """Wait until Redis does not rewrite its append-only file, which a flood makes it do."""
    deadline = time.monotonic() + REWRITE_TIMEOUT_S
    with redis.client() as client:
        while client.info("persistence")["aof_rewrite_in_progress"] and time.monotonic() < deadline:
            time.sleep(REST_S / 10)


def idle(bench: Bench) -> Row:
    """Memory of idle sessions, and log-ins per second; both beside B."""
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
            "worker memory each", memory_kib["ours"], "KiB", must=26, goal=20, lower_is_better=True
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
    """Sessions that are there while others work; `senders` flood them first."""

    twins: list[int]
    senders: list[int]

    @property
    def known(self) -> list[int]:
        """All twins the relay has to know."""
        return [*self.twins, *self.senders]

    def gather(self, target: Target, generators: Generators) -> None:
        """Sign them in, and fill their queues."""
        open_bare(target, generators, self.twins, slow=bool(self.senders))
        if self.senders:
            _flood(target, generators, self.twins, self.senders)


def slow_crowd(bench: Bench) -> Crowd:
    """Readers that stop reading, and get more than their sessions hold."""
    first_sender = FIRST_IDLE_TWIN + bench.many(SLOW_READERS)
    return Crowd(
        list(range(FIRST_IDLE_TWIN, first_sender)),
        list(range(first_sender, first_sender + SLOW_SENDERS)),
    )


def idle_crowd(bench: Bench) -> Crowd:
    """Sessions that do nothing."""
    return Crowd(list(range(FIRST_IDLE_TWIN, FIRST_IDLE_TWIN + bench.many(IDLE_SESSIONS))), [])


def slow(bench: Bench) -> Row:
    """The first row with readers that stop reading, their queues full, beside the same without."""
    crowd = slow_crowd(bench)
    count = len(crowd.twins)
    with (
        bench.relay([*FIRST_ROW.twins, *crowd.known], PATIENCE) as ours,
        bench.generators() as generators,
    ):
        before = worker_memory(ours)
        crowd.gather(ours, generators)
        growth_kib = (worker_memory(ours) - before) / count / 1024
        row = _disturbed(bench, "slow", f"{count:,} slow readers", ours, generators, must=0.9)
        kept = sum(generators.all("still_there"))
        waiting = _waiting(ours, crowd.twins)
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
    """Median length of the slow readers' streams."""
    assert target.redis is not None
    with target.redis.client() as client:
        return statistics.median(client.xlen(f"stream:{twin}") for twin in readers)


def beside(bench: Bench) -> Row:
    """The first row with idle sessions, beside the same without."""
    crowd = idle_crowd(bench)
    count = len(crowd.twins)
    with (
        bench.relay([*FIRST_ROW.twins, *crowd.known], PATIENCE) as ours,
        bench.generators() as generators,
    ):
        crowd.gather(ours, generators)
        row = _disturbed(bench, "beside", f"{count:,} idle sessions", ours, generators, must=0.95)
        kept = sum(generators.all("still_there"))
    row.figures[1:1] = [Figure("idle sessions still open", kept, must=count)]
    return row


def _disturbed(
    bench: Bench, name: str, crowd: str, ours: Target, generators: Generators, must: float
) -> Row:
    """What the first row keeps beside a crowd: in turns with a relay that has none."""
    crowded = replace(ours, name="with")
    with bench.relay(FIRST_ROW.twins) as other:
        alone = replace(other, name="without")
        mine, theirs = bench.compare(crowded, alone, generators, FIRST_ROW)
    figures = [
        Figure("the first row keeps", rate_ratio(mine, theirs), must=must),
        Figure(
            "messages per CPU second",
            median_ratio(mine, theirs, lambda sample: sample.messages_per_cpu_s),
            "of that without",
        ),
        *described("with", mine),
        *described("without", theirs),
        faults([*mine, *theirs]),
    ]
    samples = as_json(**{"with": mine, "without": theirs})
    title = f"the first row with {crowd}, beside the same without"
    return Row(name, title, figures, samples, remarks(mine, theirs))
