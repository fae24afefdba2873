"""Calls of the lattice, in turns with requests and replies of raw nats-py."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lattice.embedded import EmbeddedNats
from tests.bench import layout
from tests.bench.bench import Bench
from tests.bench.figures import Figure, Row
from tests.bench.generators import GeneratorProcess
from tests.bench.lattice.program import PAYLOAD
from tests.bench.targets import TargetError

KINDS = ("ours", "raw")
BOUNDS = {100: (0.2, 0.35), 1: (0.5, 0.75)}
"""Must and goal by calls at once."""
_COMMAND = [sys.executable, "-m", "tests.bench.lattice.program"]


@contextmanager
def _pair(kind: str, url: str) -> Iterator[GeneratorProcess]:
    with layout.on_cores(layout.layout().server):
        server = subprocess.Popen(
            [*_COMMAND, "serve", kind, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        client = GeneratorProcess(None, command=_COMMAND)
    assert server.stdin is not None and server.stdout is not None
    try:
        if not server.stdout.readline():
            raise TargetError(f"the server of {kind} did not start")
        client.call("open", kind=kind, url=url)
        yield client
    finally:
        client.close()
        server.stdin.close()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        server.stdout.close()


def calls(bench: Bench) -> Row:
    """Our caller and provider against raw requests."""
    figures, samples = [], {}
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
                samples[text] = found[kind]
    figures.sort(key=lambda figure: figure.must is None)
    return Row("lattice-calls", f"lattice: calls with {len(PAYLOAD)} B", figures, samples)
