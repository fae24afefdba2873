"""Round trips through the queues of two gateways, compared with messages through B.

A program pushes a request for its gateway, the service of another gateway takes it and answers, and
the program takes the answer. Each message is signed and encrypted, verified and decrypted. Both
gateways, their Redis servers, the relay and its Redis share the two server cores.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import layout
from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.gateways import GatewayTarget, gateway, write_twins
from tests.bench.generators import GeneratorProcess
from tests.bench.measure import WARM_UP_S, Latency, Sample, disk_waits, side_by_side, throughput
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target
from tests.bench.twins import FIRST_TWIN

ASKER, SERVER = FIRST_TWIN + 6_000, FIRST_TWIN + 6_001
COMMAND = "bench.echo"
BODY_BYTES = 256
SERVERS = 4
"""Connections of the service that take requests, if many are in progress."""
SETTLE_TIMEOUT_S = 15.0


@dataclass
class World:
    """Two gateways at one relay, and the programs that use them."""

    relay: Target
    asker: GatewayTarget
    server: GatewayTarget
    program: GeneratorProcess
    service: GeneratorProcess

    @property
    def roots(self) -> dict[str, int]:
        return {**self.relay.roots, **self.asker.roots, **self.server.roots}

    def measure(self, outstanding: int, seconds: float) -> Sample:
        """Measure once and return the sample."""
        self.program.call(
            "prepare",
            path=self.asker.redis.socket_path,
            command=COMMAND,
            twin=SERVER,
            count=outstanding,
            payload_size_bytes=BODY_BYTES,
        )
        self.program.call("start")
        time.sleep(WARM_UP_S)
        first, service_first = self.program.call("mark"), self.service.call("mark")
        cpu_first = {name: layout.cpu_s(pid) for name, pid in self.roots.items()}
        busy_first, waits_first = layout.busy_s(), disk_waits(self.relay)
        time.sleep(seconds)
        last, service_last = self.program.call("mark"), self.service.call("mark")
        used = {name: layout.cpu_s(pid) - cpu_first[name] for name, pid in self.roots.items()}
        busy_s = layout.busy_s() - busy_first
        waits = disk_waits(self.relay) - waits_first
        wall_s = (last["at_ns"] - first["at_ns"]) / 1e9
        programs_s = [
            last["cpu_s"] - first["cpu_s"],
            service_last["cpu_s"] - service_first["cpu_s"],
        ]
        account = self.program.call("stop", timeout_s=SETTLE_TIMEOUT_S)["account"]
        redis_s = sum(spent_s for name, spent_s in used.items() if "redis" in name)
        count = last["messages"]
        return Sample(
            target="ours",
            messages_per_s=count / wall_s,
            messages_per_cpu_s=count / sum(used.values()),
            latency=Latency.of(_counter(last)),
            lanes={},
            server_busy=(sum(used.values()) - redis_s) / wall_s,
            redis_busy=redis_s / wall_s,
            generator_busy=max(programs_s) / wall_s,
            worker_rss_mib=layout.resident_bytes(self.asker.process.pid) / 2**20,
            account=account,
            disturbed=max(0.0, busy_s - sum(programs_s) - sum(used.values())) / wall_s,
            disk_waits=waits,
        )


def single(bench: Bench) -> Row:
    """Measure one request after the other: the latency of all steps."""
    return _row(bench, "gateway-single", 1, must=0.02, goal=0.022)


def hundred(bench: Bench) -> Row:
    """Measure many requests at a time: the work of all steps."""
    return _row(bench, "gateway-100", 100, must=0.1, goal=0.14)


def _row(bench: Bench, name: str, outstanding: int, must: float, goal: float) -> Row:
    with (
        _world(bench, 1 if outstanding == 1 else SERVERS) as world,
        bench.yardstick() as base,
        bench.generators() as generators,
    ):

        def once(target: World | Target) -> Sample:
            if isinstance(target, World):
                return target.measure(outstanding, bench.seconds)
            return throughput(target, generators, FIRST_ROW, bench.seconds)

        mine, theirs = side_by_side([world, base], bench.runs, once, bench.most_rounds)
    figures = [
        Figure("rate", rate_ratio(mine, theirs), "B", must=must, goal=goal),
        faults(mine),
        *described("ours", mine),
        *described("B", theirs),
    ]
    return Row(
        name,
        f"round trips through two gateways, {outstanding} outstanding, {BODY_BYTES} B, encrypted "
        "and signed, all on two cores",
        figures,
        as_json(ours=mine, B=theirs),
        remarks(mine, theirs),
    )


@contextmanager
def _world(bench: Bench, servers: int) -> Iterator[World]:
    cores = layout.layout()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmbb-"))
        twins = Path(folder) / "twins.csv"
        write_twins(twins, [ASKER, SERVER])
        relay = stack.enter_context(bench.relay(sorted({*FIRST_ROW.twins, ASKER, SERVER})))
        asker, server = (
            stack.enter_context(gateway(cores.server, relay, twin, twins))
            for twin in (ASKER, SERVER)
        )
        program, service = (
            GeneratorProcess(core, "tests.bench.queue_load") for core in cores.load[:2]
        )
        stack.callback(program.close)
        stack.callback(service.close)
        service.call("serve", path=server.redis.socket_path, command=COMMAND, count=servers)
        yield World(relay, asker, server, program, service)


def _counter(mark: dict[str, object]) -> Counter[int]:
    lanes = mark["lanes"]
    assert isinstance(lanes, dict)
    return Counter(dict(lanes["all"]))
