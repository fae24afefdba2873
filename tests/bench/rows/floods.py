"""Rows about the first row beside hostile clients, one line for each reason to refuse them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tests.bench.bench import Bench, as_json, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.floods import ABSENT_TWIN, ELSEWHERE_TWIN, EXPIRING_TWIN, FULL_TWIN, KINDS
from tests.bench.layout import layout, on_cores
from tests.bench.measure import Sample, median_ratio, side_by_side, throughput
from tests.bench.rows.throughput import FIRST_ROW, p99
from tests.bench.targets import ROOT, Target
from tests.bench.twins import FIRST_TWIN

FLOODER = FIRST_TWIN + 1_000
FLOODERS = list(range(FLOODER, FLOODER + 20))
FILLERS = list(range(FIRST_TWIN + 2_000, FIRST_TWIN + 2_004))
LIMITED_PER_MIN = 100
HOMES = [*FIRST_ROW.twins, *FLOODERS, *FILLERS, ABSENT_TWIN, FULL_TWIN, EXPIRING_TWIN]
ACCOUNT = "0x" + "11" * 32
NOWHERE = "127.0.0.1:9"
"""Address of a relay that does not exist."""


@dataclass(frozen=True)
class Attack:
    """A flood: its kind of messages, its connections, and what the other clients must keep."""

    name: str
    kind: str
    connections: list[tuple[int, str | None]]
    keeps: tuple[float, float] = (0.85, 0.95)  # must and goal
    p99: tuple[float, float] | None = (2.0, 1.5)


def attacks() -> list[Attack]:
    """Return the floods: one connection for each reason; many of one twin; of many twins."""
    found = [Attack(kind, kind, [(FLOODER, None)]) for kind in KINDS]
    many = [(FLOODER, f"s{number}") for number in range(len(FLOODERS))]
    for kind in ("unknown_twin", "source_share", "ping", "websocket_ping", "unparsable"):
        one = Attack(f"{kind}, 20 connections of one twin", kind, many, (0.6, 0.85), None)
        each = [(twin, None) for twin in FLOODERS]
        found += [one, Attack(f"{kind}, one each of 20 twins", kind, each, (0.6, 0.85), None)]
    return found


@contextmanager
def flooded(target: Target, attack: Attack, sent: list[dict[str, float]]) -> Iterator[None]:
    """Run a flood during the block."""
    arguments = {
        "port": urlsplit(target.url).port,
        "kind": attack.kind,
        "connections": attack.connections,
    }
    with running_beside("tests.bench.floods", arguments, sent):
        yield


@contextmanager
def running_beside(
    module: str, arguments: dict[str, object], told: list[dict[str, float]]
) -> Iterator[None]:
    """Run a module during the block, which begins when the module has printed `ready`.

    Args:
        module: module that takes arguments as JSON, and prints figures when its stdin ends.
        arguments: its arguments.
        told: list to which the figures are added.
    """
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    with on_cores({layout().load[-1]}):
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    assert process.stdin is not None and process.stdout is not None
    with process:
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{module} did not begin: {arguments}")
            yield
            process.stdin.close()
            told.append(json.loads(process.stdout.readline()))
        finally:
            process.kill()


def beside(bench: Bench, attack: Attack, processes: int = 1) -> Row:
    """Compare the first row beside one flood and without, alternately."""
    prepare = [("rmb_twin", "add", str(ELSEWHERE_TWIN), ACCOUNT, "--relays", NOWHERE)]
    if attack.kind == "limit_count":
        prepare.append(("rmb_limit", "set", str(FLOODER), str(LIMITED_PER_MIN), "1000000000"))
    options = replace(bench.options, prepare=tuple(prepare))
    environment = {"RMB_FEDERATION__MAX_MESSAGES": "1000"}
    sent: list[dict[str, float]] = []
    with (
        replace(bench, options=options).relay(HOMES, environment, processes=processes) as relay,
        bench.generators(2) as generators,
    ):

        def once(target: Target) -> Sample:
            if target.name == "alone":
                return throughput(target, generators, FIRST_ROW, bench.seconds)
            with flooded(target, attack, sent):
                return throughput(target, generators, FIRST_ROW, bench.seconds)

        targets = [replace(relay, name="flooded"), replace(relay, name="alone")]
        mine, theirs = side_by_side(targets, bench.runs, once, bench.most_rounds)
    rate, growth = rate_ratio(mine, theirs), median_ratio(mine, theirs, p99)
    must, goal = attack.keeps
    must_p99, goal_p99 = attack.p99 or (None, None)
    name = attack.name
    figures = [
        Figure(f"{name}: rate kept", rate, must=must, goal=goal),
        Figure(f"{name}: p99", growth, "x", must=must_p99, goal=goal_p99, lower_is_better=True),
        Figure(f"{name}: flood sent", _mean(sent, "sent_per_s"), "msg/s"),
        Figure(f"{name}: flood signed in", _mean(sent, "sign_ins_per_s"), "a second"),
        replace(faults([*mine, *theirs]), name=f"{name}: faults"),
    ]
    samples = as_json(**{f"{name}, flooded": mine, f"{name}, alone": theirs})
    return Row(name, name, figures, samples, remarks(mine, theirs))


def _mean(sent: list[dict[str, float]], unit: str) -> float:
    return sum(each[unit] for each in sent) / len(sent)


def floods(bench: Bench, processes: int = 1, name: str = "floods") -> Row:
    """Measure the first row beside each flood."""
    rows = []
    for attack in attacks():
        rows.append(beside(bench, attack, processes))
        kept, growth = rows[-1].figures[:2]
        told = f"{attack.name}: {kept.value:.2f} kept, p99 {growth.value:.1f} x"
        print(told, file=sys.stderr, flush=True)
    return Row(
        name,
        "the first row beside one flood of messages in vain, in turns with the same without",
        [figure for row in rows for figure in row.figures],
        {key: samples for row in rows for key, samples in (row.samples or {}).items()},
        [remark for row in rows for remark in row.remarks],
    )


def floods_two(bench: Bench) -> Row:
    """Measure the same with two workers."""
    return floods(bench, 2, "floods-two")
