"""Row about the chain as the source of twins: a rush of look-ups beside log-ins.

The node is the stand-in of `chain.devchain`, on the cores of the load generators, and answers after
a network's time. The relay has no mirror of the chain: nobody follows it here.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
"""Each connection may wait for 64 look-ups: so many have all of them under way at once."""
KNOWN = 200
ANSWER_S = 0.05
PUT_AT_ONCE = 1_000
QUERY = "state_queryStorageAt"


def look_ups(bench: Bench) -> Row:
    """Messages to twins nobody has heard of, all at once, beside log-ins of known twins."""
    unknown_each = bench.many(UNKNOWN)
    numbers = iter(range(FIRST_TWIN, 1 << 31))
    senders, known = list(islice(numbers, SENDERS)), list(islice(numbers, KNOWN))
    rushes = [list(islice(numbers, unknown_each)) for _ in range(bench.runs)]
    alone_s, beside_s, rush_s, queries = [], [], [], []
    wrong = 0
    with (
        _node([*senders, *known, *(twin for rush in rushes for twin in rush)]) as node,
        bench.relay([], {"RMB_TWINS__SOURCE": "tfchain", "RMB_SUBSTRATE__URLS": node.url}) as ours,
    ):
        _log_in(bench, ours, known)  # from now on they are known
        for rush in rushes:
            alone_s.append(_log_in(bench, ours, known))
            with bench.generators() as generators:
                busy, calm = generators.processes
                pairs = [(senders[n % SENDERS], twin) for n, twin in enumerate(rush)]
                busy.call("connect", url=ours.url, twins=senders)
                busy.call("flows", pairs=pairs, payload_size_bytes=256)
                calm.call("prepare", twins=known)
                asked = node.requests(QUERY)
                busy.begin("bulk", messages=1)
                beside_s.append(span_s([calm.call("stay", url=ours.url, twins=known)]))
                rush_s.append(span_s([busy.finish()]))
                queries.append((node.requests(QUERY) - asked) / len(rush))
                wrong += sum(busy.call("settle", timeout_s=0)["notices"].values())
    kept = statistics.median(one / two for one, two in zip(alone_s, beside_s, strict=True))
    figures = [
        Figure("chain queries for each twin", max(queries), must=1, lower_is_better=True),
        Figure("log-ins of known twins keep", kept, must=0.9),
        Figure("messages refused", wrong, must=0, lower_is_better=True),
        Figure("look-ups per second", unknown_each / statistics.median(rush_s)),
        Figure("log-ins per second alone", KNOWN / statistics.median(alone_s)),
        Figure("log-ins per second beside them", KNOWN / statistics.median(beside_s)),
    ]
    return Row("look-ups", f"{unknown_each:,} unknown twins of the chain at once", figures)


@contextmanager
def _node(twins: list[int]) -> Iterator[Devchain]:
    """A node on the load generators' cores that knows these twins."""
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
    """Seconds that the sign-ins of these twins take."""
    with bench.generators(1) as generators:
        generators.all("prepare", twins=twins)
        return span_s(generators.all("stay", url=target.url, twins=twins))
