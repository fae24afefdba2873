"""Generator of a synthetic history in the layout of the lake: `manage.py rmb_analytics generate`.

The activity of the twins follows Zipf's law. They exchange messages for days through some relays,
more by day than by night, less at weekends, and mostly with their contacts. Some messages wait in a
queue, some are dropped, a few are lost or delivered twice, and one relay is hard to reach. Sessions
open and close. The history hides bursts, storms of reconnects and restarts of relays. Some twins
and actors of a lattice call each other.

The same options generate the same rows. Each hour is drawn from the seed and the hour's number, so
a history does not depend on the speed of the machine. Rows that fall into a later hour (a delivery
in the next hour, the end of a session) are kept until that hour is written. `generated.json` beside
the events lists what is hidden, to compare it with what the jobs find.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relay.analytics import arrow_schema
from relay.analytics.errors import AnalyticsError
from relay.analytics.spark import schema
from relay.analytics.spark.window import Window
from relay.analytics.synthetic import connections, incidents, lattice, traffic
from relay.analytics.synthetic.incidents import HOUR_US
from relay.analytics.synthetic.population import Population
from relay.analytics.synthetic.rows import Rows

TRUTH: Final = "generated.json"
SESSIONS_PER_MESSAGE: Final = 0.04
INVOCATIONS_PER_MESSAGE: Final = 0.02
SAMPLE: Final = 20_000
"""Size of the sample of messages from which the number of rows per message is computed."""
WRITERS: Final = 2
"""Number of threads that write, and maximum number of hours that wait for them."""
TAIL_HOURS: Final = 2
"""Hours at the end in which no message is lost, because the audit cannot find such losses yet."""
_SEED_OF_ALL: Final = 1 << 32
"""Number used in place of an hour's number for what is drawn once for the whole history."""


class GeneratorError(AnalyticsError):
    """The options are invalid, or the folder already has events."""


@dataclass(frozen=True)
class Options:
    """Options of a history.

    Attributes:
        first: first day.
        days: number of days.
        rows: approximate number of rows, to a few percent.
        twins: number of twins.
        relays: number of relays; if there are two or more, the last one is the bad one.
        seed: seed of the random numbers; another seed makes another history.
        lost: lost messages per million.
        doubled: messages per million that are delivered twice.
        bursts: twins that send many messages in one hour; only after a week of history.
        storms: twins that reconnect again and again.
        restarts: restarts of relays.
    """

    first: date
    days: int = 30
    rows: int = 5_000_000
    twins: int = 200_000
    relays: int = 6
    seed: int = 1
    lost: float = 2.0
    doubled: float = 460.0
    bursts: int = 5
    storms: int = 50
    restarts: int = 3

    def __post_init__(self) -> None:
        bounds = {
            "days": (1, 4_000),
            "rows": (100, 10_000_000_000),
            "twins": (4, 10_000_000),
            "relays": (1, 100),
            "seed": (0, (1 << 32) - 1),
            "lost": (0, 1_000_000),
            "doubled": (0, 1_000_000),
            "bursts": (0, 10_000),
            "storms": (0, 1_000_000),
            "restarts": (0, 10_000),
        }
        for name, (least, most) in bounds.items():
            if not least <= getattr(self, name) <= most:
                raise GeneratorError(f"{name} must be from {least:,} to {most:,}")

    @property
    def hours(self) -> int:
        """Number of hours of history."""
        return self.days * 24

    @property
    def start_us(self) -> int:
        """Start of the history, in microseconds since 1970."""
        return Window(self.first, self.first).start_us

    def names(self) -> list[str]:
        """Return the domains of the relays."""
        return [f"relay-{number}.example" for number in range(1, self.relays + 1)]


@dataclass
class Truth:
    """What the jobs can find in a history.

    Attributes:
        rows: number of rows by kind.
        files: number of written files.
        bad_relay: relay that others often fail to reach, or "".
        lost: uids of messages that were lost.
        doubled: uids of messages that were delivered twice.
        in_flight: number of messages without an outcome at the end, except lost ones.
        bursts: (twin, hour as microseconds since 1970, messages).
        storms: (twin, name of the session, first open, last open, opens).
        restarts: (relay, time, maximum number of twins).
    """

    rows: dict[str, int]
    files: int
    bad_relay: str
    lost: list[int]
    doubled: list[int]
    in_flight: int
    bursts: list[tuple[int, int, int]]
    storms: list[tuple[int, str, int, int, int]]
    restarts: list[tuple[str, int, int]]


def generate(
    folder: Path,
    options: Options,
    progress: Callable[[int, int], None] = lambda hour, hours: None,
) -> Truth:
    """Write a history.

    Args:
        folder: root folder of the lake, which must not have events.
        options: options of the history.
        progress: called after each hour with the number of hours made, and of all hours.

    Raises:
        GeneratorError: the lake has events already.
        OSError: the disk is full, or the folder cannot be written.
    """
    events = folder / "events"
    if events.exists() and any(events.rglob("*.parquet")):
        raise GeneratorError(f"there are events in {events} already; choose another folder")
    history = _History(options)
    counts = dict.fromkeys((*schema.KINDS, *schema.LATTICE_KINDS), 0)
    files = 0
    under_way: deque[Future[None]] = deque()
    with ThreadPoolExecutor(WRITERS) as pool:
        for hour, rows, invocations in history.hours():
            for kind, count in rows.counts().items():
                counts[kind] += count
            for each in pc.value_counts(invocations["kind"].cast(pa.string())).to_pylist():
                counts[each["values"]] += each["counts"]
            if len(rows) or len(invocations):
                files += 1
                table = pa.concat_tables([rows.table(options.names()), invocations])
                under_way.append(pool.submit(_write, events, options, hour, table))
            if len(under_way) > WRITERS:
                under_way.popleft().result()
            progress(hour + 1, options.hours)
        for written in under_way:
            written.result()
    truth = history.truth(counts, files)
    told = {"options": dataclasses.asdict(options), **dataclasses.asdict(truth)}
    (folder / TRUTH).write_text(json.dumps(told, default=str, indent=1))
    return truth


class _History:
    """Generator of the hours, which keeps rows that fall into later hours."""

    def __init__(self, options: Options) -> None:
        self._options = options
        rng = self._rng(_SEED_OF_ALL)
        self._population = Population(rng, options.twins, options.relays)
        bad = options.relays - 1 if options.relays > 1 else None
        self._rates = traffic.Rates(options.lost, options.doubled, bad)
        self._tail_rates = dataclasses.replace(self._rates, lost=0.0)
        self._hidden = incidents.draw(
            rng,
            self._population,
            options.start_us,
            options.hours,
            bursts=options.bursts,
            storms=options.storms,
            restarts=options.restarts,
            relays=options.relays,
        )
        self._messages = self._plan(rng)
        self._later = Rows()
        self._lost: list[int] = []
        self._doubled: list[int] = []
        self._in_flight = 0

    def hours(self) -> Iterator[tuple[int, Rows, pa.Table]]:
        """Yield the number of each hour, its rows, and its rows of the lattice."""
        options = self._options
        for hour in range(options.hours):
            start_us = options.start_us + hour * HOUR_US
            rng = self._rng(hour)
            self._make(rng, hour, start_us)
            calls = math.ceil(self._messages[hour] * INVOCATIONS_PER_MESSAGE)
            first, twins = options.names()[0], self._population.ids
            invocations = lattice.invocations(rng, start_us, calls, twins, first)
            yield hour, self._later.cut(start_us + HOUR_US), invocations

    def truth(self, counts: dict[str, int], files: int) -> Truth:
        """Return what was hidden in the history."""
        options, hidden = self._options, self._hidden
        names = options.names()
        bad = self._rates.bad_relay
        return Truth(
            rows=counts,
            files=files,
            bad_relay="" if bad is None else names[bad],
            lost=sorted(self._lost),
            doubled=sorted(self._doubled),
            in_flight=self._in_flight,
            bursts=[
                (each.twin, options.start_us + each.hour * HOUR_US, each.messages)
                for each in hidden.bursts
            ],
            storms=[
                (each.twin, "agent", each.times_us[0], each.times_us[-1], len(each.times_us))
                for each in hidden.storms
            ],
            restarts=[(names[each.relay], each.at_us, each.sessions) for each in hidden.restarts],
        )

    def _make(self, rng: np.random.Generator, hour: int, start_us: int) -> None:
        options, population = self._options, self._population
        senders = population.senders(rng, self._messages[hour])
        times = start_us + np.sort(rng.integers(0, HOUR_US, len(senders)))
        for burst in self._hidden.bursts:
            if burst.hour == hour:
                place = np.flatnonzero(population.ids == burst.twin)
                senders = np.append(senders, np.repeat(place, burst.messages))
                many = start_us + rng.integers(0, HOUR_US, burst.messages)
                times = np.append(times, many)
        last = hour >= options.hours - TAIL_HOURS
        rates = self._tail_rates if last else self._rates
        made = traffic.messages(rng, population, rates, times, senders)
        self._later.take(made.rows)
        end_us = options.start_us + options.hours * HOUR_US
        self._lost += made.lost.tolist()
        self._doubled += made.doubled[0][made.doubled[1] < end_us].tolist()
        self._in_flight += int(np.count_nonzero(made.settled[1] >= end_us))

        opens = math.ceil(self._messages[hour] * SESSIONS_PER_MESSAGE)
        opened = start_us + np.sort(rng.integers(0, HOUR_US, opens))
        self._later.take(connections.sessions(rng, population, opened))
        for storm in self._hidden.storms:
            if storm.hour_us == start_us:
                self._later.take(connections.storm(rng, population, storm))
        for restart in self._hidden.restarts:
            if start_us <= restart.at_us < start_us + HOUR_US:
                self._later.take(connections.restart(rng, population, restart))

    def _plan(self, rng: np.random.Generator) -> list[int]:
        """Return the number of messages of each hour that gives the requested number of rows."""
        options = self._options
        senders = self._population.senders(rng, SAMPLE)
        times = np.full(SAMPLE, options.start_us)
        sample = traffic.messages(rng, self._population, self._rates, times, senders)
        per_message = len(sample.rows) / SAMPLE
        per_message += 2 * (SESSIONS_PER_MESSAGE + INVOCATIONS_PER_MESSAGE)
        hidden = self._hidden
        others = 2 * sum(len(storm.times_us) for storm in hidden.storms)
        others += 2 * sum(restart.sessions for restart in hidden.restarts)
        others += round(per_message) * sum(burst.messages for burst in hidden.bursts)
        messages = max(options.rows - others, options.rows / 2) / per_message
        weights = np.array([_busyness(options.start_us, hour) for hour in range(options.hours)])
        sums = np.cumsum(weights / weights.sum() * messages).round()
        return [int(count) for count in np.diff(sums, prepend=0)]

    def _rng(self, hour: int) -> np.random.Generator:
        return np.random.default_rng([self._options.seed, hour])


def _busyness(start_us: int, hour: int) -> float:
    """Return the relative traffic of an hour: highest at 14:00, lower at weekends."""
    when = datetime.fromtimestamp(start_us / 1e6, UTC) + timedelta(hours=hour)
    by_day = 1 + 0.7 * math.cos((when.hour - 14) / 24 * 2 * math.pi)
    return by_day * (0.75 if when.weekday() >= 5 else 1.0)


def _write(events: Path, options: Options, hour: int, table: pa.Table) -> None:
    when = datetime.fromtimestamp(options.start_us / 1e6, UTC) + timedelta(hours=hour)
    folder = events / f"date={when:%Y-%m-%d}" / f"hour={when:%H}"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"generated-{options.seed}-{when:%Y%m%d%H}"
    draft = folder / f"_tmp-{name}"
    table = table.unify_dictionaries()
    pq.write_table(table, draft, row_group_size=arrow_schema.ROW_GROUP, **arrow_schema.WRITING)
    os.replace(draft, folder / f"{name}.parquet")
