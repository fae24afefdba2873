"""Round trips between two programs that use `peer.client`, compared with messages through B.

Each program signs, encrypts, verifies and decrypts; the relay, its Redis and both programs share
the two server cores.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import layout
from tests.bench import twins as bench_twins
from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.client_load import COMMAND
from tests.bench.figures import Figure, Row
from tests.bench.generators import GeneratorProcess
from tests.bench.measure import (
    WARM_UP_S,
    Latency,
    Sample,
    cpu_of,
    disk_waits,
    median,
    side_by_side,
    throughput,
)
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target

CALLER, SERVER = bench_twins.FIRST_TWIN + 5_000, bench_twins.FIRST_TWIN + 5_001
OUTSTANDING = 100
BODY_BYTES = 256


@dataclass
class Pair:
    """Two programs at one relay.

    Attributes:
        relay: relay of both.
        caller: program that calls.
        server: program that answers, where its command is called.
        twin: twin that is called.
        command: command that is called.
        others: ids of further processes that take part in the calls.
    """

    relay: Target
    caller: GeneratorProcess
    server: GeneratorProcess
    twin: int = SERVER
    command: str = COMMAND
    others: Sequence[int] = ()

    def measure(self, seconds: float) -> Sample:
        """Measure once and return the sample."""
        call = {"twin": self.twin, "command": self.command}
        self.caller.call("start", outstanding=OUTSTANDING, size_bytes=BODY_BYTES, **call)
        time.sleep(WARM_UP_S)
        first, server_first = self.caller.call("mark"), self.server.call("mark")
        relay_first, busy_first = cpu_of(self.relay), layout.busy_s()
        others_first = self._others_s()
        waits_first = disk_waits(self.relay)
        time.sleep(seconds)
        last, server_last = self.caller.call("mark"), self.server.call("mark")
        relay_used = {
            name: used_s - relay_first[name] for name, used_s in cpu_of(self.relay).items()
        }
        busy_s = layout.busy_s() - busy_first
        waits = disk_waits(self.relay) - waits_first
        wall_s = (last["at_ns"] - first["at_ns"]) / 1e9
        programs_s = last["cpu_s"] - first["cpu_s"] + server_last["cpu_s"] - server_first["cpu_s"]
        programs_s += self._others_s() - others_first
        count = len(last["latencies_us"])
        account = {"duplicates": 0, "out_of_order": 0, **self.caller.call("stop")}
        return Sample(
            target="ours",
            messages_per_s=count / wall_s,
            messages_per_cpu_s=count / (programs_s + sum(relay_used.values())),
            latency=Latency.of(Counter(last["latencies_us"])),
            lanes={},
            server_busy=relay_used["server"] / wall_s,
            redis_busy=relay_used["redis"] / wall_s,
            generator_busy=programs_s / wall_s / 2,
            worker_rss_mib=0.0,
            account=account,
            disturbed=max(0.0, busy_s - programs_s - sum(relay_used.values())) / wall_s,
            disk_waits=waits,
        )

    def _others_s(self) -> float:
        return sum(map(layout.cpu_s, self.others))


@contextmanager
def programs(relay: Target, sheet: Path) -> Iterator[Pair]:
    """Start a caller and a server that know the twins of this file."""
    with layout.on_cores(layout.layout().server):
        caller, server = (GeneratorProcess(None, "tests.bench.client_load") for _ in range(2))
    try:
        for program, twin, sid in ((server, SERVER, None), (caller, CALLER, "bench")):
            secret = bench_twins.secret(twin)
            program.call("open", secret=secret, url=relay.url, twins=str(sheet), sid=sid)
        server.call("serve")
        yield Pair(relay, caller, server)
        for program in (caller, server):
            program.call("close")
    finally:
        caller.close()
        server.close()


def client_calls(bench: Bench) -> Row:
    """Measure `Client.call` to `Client.serve` through the relay."""
    twins = sorted({*FIRST_ROW.twins, CALLER, SERVER})
    with (
        bench.relay(twins) as relay,
        bench.yardstick() as base,
        tempfile.TemporaryDirectory(prefix="rmbb-") as folder,
        programs(relay, bench_twins.sheet(Path(folder), (CALLER, SERVER))) as pair,
        bench.generators() as generators,
    ):

        def once(target: Pair | Target) -> Sample:
            if isinstance(target, Pair):
                return target.measure(bench.seconds)
            return throughput(target, generators, FIRST_ROW, bench.seconds)

        mine, theirs = side_by_side([pair, base], bench.runs, once, bench.most_rounds)
    busy = median(mine, lambda sample: 2 * sample.generator_busy)
    figures = [
        Figure("rate", rate_ratio(mine, theirs), "B", must=0.17, goal=0.22),
        faults(mine),
        Figure("programs: cores used by both", busy),
        *described("ours", mine),
        *described("B", theirs),
    ]
    return Row(
        "client-calls",
        f"calls and answers, {OUTSTANDING} outstanding, {BODY_BYTES} B, encrypted and signed, all "
        "on two cores",
        figures,
        as_json(ours=mine, B=theirs),
        remarks(mine, theirs),
    )
