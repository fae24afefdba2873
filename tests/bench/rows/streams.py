"""Rows that compare our streams and calls with gRPC's and with the JavaScript libraries.

Each pair is a server and a client on the server cores. The JavaScript client supports TLS only, so
it is compared with another measurement of ours that uses TLS.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hotpath.compiled import SWITCH
from tests.bench import layout
from tests.bench.bench import Bench
from tests.bench.figures import Figure, Row
from tests.bench.generators import GeneratorProcess
from tests.bench.measure import DISTURBED_LIMIT
from tests.bench.rows.throughput import require_build
from tests.bench.streams.program import CHUNK_BYTES, MESSAGE_BYTES, PARAMS
from tests.bench.targets import TargetError
from tests.support.certificates import make_certificate
from tests.support.node import PEERS, node

OURS, GRPC, OURS_TLS, JS = "ours", "grpc.aio", "ours, TLS", "JavaScript"
PURE = "pure Python"
BASES = {GRPC: OURS, JS: OURS_TLS, PURE: OURS}
"""What ours is compared with, and which measurement of ours is used for it."""
GAIN_ON_JS = (3.0, 5.0)
IDLE_STREAMS = 20_000
MIB = 2**20


@dataclass
class Pair:
    """A server and its client."""

    name: str
    server: subprocess.Popen[str]
    client: GeneratorProcess

    def run(self, kind: str, workers: int, seconds: float) -> dict[str, float]:
        """Measure once and return the figures."""
        began_s, busy_s, own_s = time.monotonic(), layout.busy_s(), self._cpu_s()
        found: dict[str, float] = self.client.call(
            "run", kind=kind, workers=workers, seconds=seconds
        )
        own_s = self._cpu_s() - own_s
        others_s = layout.busy_s() - busy_s - own_s
        took_s = time.monotonic() - began_s
        found["disturbed"] = max(0.0, others_s) / took_s
        found["busy"] = own_s / took_s
        found["per_s"] = found["count"] / found["wall_s"]
        found["per_cpu_s"] = found["per_s"] / (found["busy"] or 1)
        return found

    def _cpu_s(self) -> float:
        return layout.cpu_s(self.server.pid) + layout.cpu_s(self.client.pid)


@contextmanager
def _pair(name: str, certificate: tuple[Path, Path]) -> Iterator[Pair]:
    path, key = map(str, certificate)
    module = "tests.bench.streams." + ("grpc_pair" if name == GRPC else "ours")
    client: list[str] = [sys.executable, "-m", module]
    server = [*client, "serve", *((path, key) if name == OURS_TLS else ())]
    if name == JS:
        client = [node(), str(PEERS / "bench.js")]
        server = [*client, "serve", key, path]
    form = {SWITCH: "0"} if name == PURE else {}
    with layout.on_cores(layout.layout().server):
        process = subprocess.Popen(
            server,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **form},
        )
        generator = GeneratorProcess(None, command=client, environment=form)
    try:
        assert process.stdout is not None
        ports = [int(each) for each in process.stdout.readline().split()]
        if not ports:
            raise TargetError(f"the server of {name} did not start")
        if name == JS:
            generator.call("open", port=ports[0], calls_port=ports[1])
        else:
            generator.call("open", port=ports[0], certificate=path if name == OURS_TLS else None)
        yield Pair(name, process, generator)
        generator.call("close")
    finally:
        generator.close()
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _pairs(names: Sequence[str]) -> Iterator[list[Pair]]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmbb-")))
        certificate = make_certificate(folder)
        yield [stack.enter_context(_pair(name, certificate)) for name in names]


@dataclass
class _Found:
    """Samples of each pair; those with the same index are neighbours in time."""

    samples: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def ratio(self, base: str, name: str = "per_s") -> float:
        """Return the median of ours / base, for samples measured next to each other."""
        pairs = zip(self.samples[BASES[base]], self.samples[base], strict=True)
        return statistics.median(mine[name] / (theirs[name] or 1) for mine, theirs in pairs)

    def per_s(self, name: str) -> float:
        return statistics.median(sample["per_s"] for sample in self.samples[name])

    @property
    def disturbed(self) -> float:
        """Largest number of cores that others used during a measurement."""
        return max(each["disturbed"] for group in self.samples.values() for each in group)


def _in_turns(bench: Bench, pairs: Sequence[Pair], kind: str, workers: int) -> _Found:
    found = _Found({pair.name: [] for pair in pairs})
    for number in range(bench.runs):
        for pair in reversed(pairs) if number % 2 else pairs:
            found.samples[pair.name].append(pair.run(kind, workers, bench.seconds))
    return found


def _compared(
    bench: Bench, name: str, title: str, kind: str, unit: str, loads: Sequence[int],
    bounds: tuple[float, float], scale: float = 1.0,
) -> Row:  # fmt: skip
    figures, samples, remarks = [], {}, []
    with _pairs([OURS, GRPC, OURS_TLS, JS]) as pairs:
        for workers in loads:
            found = _in_turns(bench, pairs, kind, workers)
            for base in (GRPC, JS):
                must, goal = bounds if base == GRPC else GAIN_ON_JS
                what = f"{workers} at once{', TLS' if base == JS else ''}"
                figures.append(Figure(what, found.ratio(base), base, must, goal))
                per_cpu_s = found.ratio(base, "per_cpu_s")
                figures.append(Figure(f"{what}, per CPU second", per_cpu_s, base))
            for pair in pairs:
                text = f"{pair.name}: {workers} at once"
                figures.append(Figure(text, found.per_s(pair.name) * scale, unit))
                samples[text] = found.samples[pair.name]
            if found.disturbed > DISTURBED_LIMIT:
                remarks.append(f"{workers} at once: others used up to {found.disturbed:.2f} cores")
    figures.sort(key=lambda figure: figure.must is None)
    return Row(name, title, figures, samples, remarks)


def echo(bench: Bench) -> Row:
    """Measure chunks through streams that echo, as fast as possible."""
    title = f"streams: echo of {CHUNK_BYTES // 1024} KiB chunks"
    bounds = (1.0, 1.5)
    return _compared(
        bench, "streams-echo", title, "chunks", "MB/s", (1, 100), bounds, scale=1e-6
    )  # fmt: skip


def small(bench: Bench) -> Row:
    """Measure small messages, one after another on each of many streams."""
    title = f"streams: {MESSAGE_BYTES} B messages, one under way on each stream"
    bounds = (1.5, 4.0)
    return _compared(bench, "streams-small", title, "messages", "/s", (100,), bounds)


def calls(bench: Bench) -> Row:
    """Measure unary calls."""
    title = f"unary calls with {len(str(PARAMS))} B of JSON each way"
    bounds = (1.0, 2.0)
    return _compared(bench, "calls", title, "calls", "/s", (1, 100), bounds)


def compiled(bench: Bench) -> Row:
    """Compare the loads of the other rows, with both ends compiled and in pure Python."""
    require_build()
    figures, samples, remarks = [], {}, []
    with _pairs([OURS, PURE]) as pairs:
        for kind, workers in (("chunks", 1), ("messages", 100), ("calls", 1), ("calls", 100)):
            found = _in_turns(bench, pairs, kind, workers)
            what = f"{kind}, {workers} at once"
            figures.append(Figure(what, found.ratio(PURE), "of pure Python", must=1.2, goal=2.0))
            per_cpu_s = found.ratio(PURE, "per_cpu_s")
            figures.append(Figure(f"{what}, per CPU second", per_cpu_s, "of pure Python"))
            samples |= {f"{pair.name}: {what}": found.samples[pair.name] for pair in pairs}
            if found.disturbed > DISTURBED_LIMIT:
                remarks.append(f"{what}: others used up to {found.disturbed:.2f} cores")
    title = "streams and calls, compiled beside pure"
    return Row("streams-compiled", title, figures, samples, remarks)


def idle(bench: Bench) -> Row:
    """Measure the memory of idle streams, at both ends."""
    count = bench.many(IDLE_STREAMS)
    figures = []
    for name in (OURS, GRPC, JS):
        with _pairs([name]) as (pair,):
            pair.run("messages", 1, 1.0)
            before = layout.resident_bytes(pair.server.pid), pair.client.call("memory")
            if pair.client.call("idle", streams=count) != count:
                raise TargetError(f"{name}: not all streams are open")
            after = layout.resident_bytes(pair.server.pid), pair.client.call("memory")
        for end, first, last in zip(("server", "client"), before, after, strict=True):
            each_kib = (last - first) / count / 1024
            must, goal = (4.0, 2.0) if name == OURS else (None, None)
            what = f"{name}: {end}, each"
            figures.append(Figure(what, each_kib, "KiB", must, goal, lower_is_better=True))
    return Row("streams-idle", f"{count:,} idle streams on one connection", figures)
