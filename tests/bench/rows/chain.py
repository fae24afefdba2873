"""Row about the chain as the source of twins: many look-ups at once, beside log-ins.

The node is the stand-in of `chain.devchain`, on the cores of the load generators, and answers with
the delay of a network. The relay has no mirror of the chain, because no process follows it here.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from proto.identity import ss58
from tests.bench import twins as bench_twins
from tests.bench.bench import Bench
from tests.bench.figures import Figure, Row
from tests.bench.layout import layout, on_cores
from tests.bench.rows.queues import span_s
from tests.bench.targets import Target
from tests.bench.twins import FIRST_TWIN
from tests.support.devchain import Devchain, running_devchain

UNKNOWN = 1_000
SENDERS = 20
"""Number of senders: each connection may wait for 64 look-ups, so all can be in progress."""
KNOWN = 200
ANSWER_S = 0.05
SLOW_ANSWER_S = 1.0
GATHERED_S = 0.3
"""Seconds until the relay has read all messages and asked for their twins; log-ins take less than
the rest of `SLOW_ANSWER_S`."""
PUT_AT_ONCE = 1_000
QUERY = "state_queryStorageAt"


@dataclass
class _Rush:
    """Figures of one message each to many twins at once.

    Attributes:
        log_ins_s: seconds that the log-ins of the known twins took meanwhile.
        took_s: seconds until all messages were decided.
        queries: number of chain queries.
        refused: number of messages refused.
    """

    log_ins_s: float
    took_s: float
    queries: int
    refused: int


def look_ups(bench: Bench) -> Row:
    """Send messages to unknown twins, all at once, while known twins log in."""
    unknown_each = bench.many(UNKNOWN)
    numbers = iter(range(FIRST_TWIN, 1 << 31))
    senders, known = list(islice(numbers, SENDERS)), list(islice(numbers, KNOWN))
    crowds = [list(islice(numbers, unknown_each)) for _ in range(2 * bench.runs)]
    alone_s: list[float] = []
    waiting, arriving, known_ones = [], [], []
    with (
        _node([*senders, *known, *(twin for crowd in crowds for twin in crowd)]) as node,
        bench.relay([], {"RMB_TWINS__SOURCE": "tfchain", "RMB_SUBSTRATE__URLS": node.url}) as ours,
    ):
        rush = partial(_rush, bench, ours, node, senders, known)
        _log_in(bench, ours, known)  # from now on the relay knows them
        for crowd, other in zip(crowds[::2], crowds[1::2], strict=True):
            alone_s.append(_log_in(bench, ours, known))
            node.set(delay_s=SLOW_ANSWER_S)
            waiting.append(rush(crowd, head_start_s=GATHERED_S))
            node.set(delay_s=ANSWER_S)
            arriving.append(rush(other))
            known_ones.append(rush(other))

    def kept(rushes: list[_Rush]) -> float:
        spans = zip(alone_s, rushes, strict=True)
        return statistics.median(alone / each.log_ins_s for alone, each in spans)

    def log_ins_per_s(rushes: list[_Rush]) -> float:
        return KNOWN / statistics.median(each.log_ins_s for each in rushes)

    queries = max(each.queries / unknown_each for each in (*waiting, *arriving))
    refused = sum(each.refused for each in (*waiting, *arriving, *known_ones))
    figures = [
        Figure("chain queries for each twin", queries, must=1, lower_is_better=True),
        Figure("log-ins of known twins keep while they wait", kept(waiting), must=0.9),
        Figure("log-ins keep while they come and are answered", kept(arriving)),
        Figure("the same when all of these twins are known", kept(known_ones)),
        Figure("messages refused", refused, must=0, lower_is_better=True),
        Figure("look-ups per second", unknown_each / statistics.median(r.took_s for r in arriving)),
        Figure("log-ins per second alone", KNOWN / statistics.median(alone_s)),
        Figure("log-ins per second while they wait", log_ins_per_s(waiting)),
        Figure("log-ins per second while they come", log_ins_per_s(arriving)),
    ]
    return Row("look-ups", f"{unknown_each:,} unknown twins of the chain at once", figures)


def _rush(
    bench: Bench,
    target: Target,
    node: Devchain,
    senders: list[int],
    known: list[int],
    twins: list[int],
    head_start_s: float = 0.0,
) -> _Rush:
    """Send a message to each of these twins, and let the known ones log in meanwhile."""
    with bench.generators() as generators:
        busy, calm = generators.processes
        pairs = [(senders[n % SENDERS], twin) for n, twin in enumerate(twins)]
        busy.call("connect", url=target.url, twins=senders)
        busy.call("flows", pairs=pairs, payload_size_bytes=256)
        calm.call("prepare", twins=known)
        asked = node.requests(QUERY)
        busy.begin("bulk", messages=1)
        time.sleep(head_start_s)
        log_ins_s = span_s([calm.call("stay", url=target.url, twins=known)])
        took_s = span_s([busy.finish()])
        refused = sum(busy.call("settle", timeout_s=0)["notices"].values())
        return _Rush(log_ins_s, took_s, node.requests(QUERY) - asked, refused)


@contextmanager
def _node(twins: list[int]) -> Iterator[Devchain]:
    """Run a node that knows these twins, on the load generators' cores."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmbb-"))
        with on_cores(frozenset(layout().load)):
            node = stack.enter_context(running_devchain(Path(folder)))
        for first in range(0, len(twins), PUT_AT_ONCE):
            node.put_twins([_as_json(twin) for twin in twins[first : first + PUT_AT_ONCE]])
        node.set(delay_s=ANSWER_S)
        yield node


def _as_json(twin: int) -> dict[str, object]:
    account = ss58.encode(bench_twins.signing_key(twin).account)
    return {"id": twin, "account": account, "relay": bench_twins.DOMAIN, "pk": "0x"}


def _log_in(bench: Bench, target: Target, twins: list[int]) -> float:
    """Return the seconds that the sign-ins of these twins take."""
    with bench.generators(1) as generators:
        generators.all("prepare", twins=twins)
        return span_s(generators.all("stay", url=target.url, twins=twins))
