"""Rows of the sessions of one hour, and of storms of reconnects."""

from __future__ import annotations

from typing import Final

import numpy as np

from relay.analytics.spark import schema
from relay.analytics.synthetic.incidents import Restart, Storm
from relay.analytics.synthetic.population import Population
from relay.analytics.synthetic.rows import REASON, STORMY, Column, Rows
from relay.analytics.synthetic.traffic import SECOND_US, numbers

TYPICAL_LENGTH_S: Final = 1_800
LONGEST_S: Final = 48 * 3_600
NEVER_CLOSED: Final = 0.002
"""Share of the sessions whose end is not recorded."""
RESTART_US: Final = 30 * SECOND_US
"""Time in which the twins of a restarted relay reconnect, in microseconds."""

_ENDS: Final = ("client_close", "client_close", "client_close", "idle", "replaced", "drained")


def sessions(rng: np.random.Generator, population: Population, times: Column) -> Rows:
    """Return rows of sessions that random twins open at given times."""
    twins = rng.integers(0, len(population), len(times))
    return _rows(rng, population, times, twins)


def restart(rng: np.random.Generator, population: Population, told: Restart) -> Rows:
    """Return rows of the sessions that reconnect after a restart of a relay."""
    members = np.flatnonzero(population.home == told.relay)
    twins = rng.permutation(members)[: told.sessions]
    times = told.at_us + np.sort(rng.integers(0, RESTART_US, len(twins)))
    return _rows(rng, population, times, twins)


def storm(rng: np.random.Generator, population: Population, told: Storm) -> Rows:
    """Return rows of one twin that reconnects again and again."""
    rows = Rows()
    times = np.array(told.times_us)
    place = int(np.flatnonzero(population.ids == told.twin)[0])
    uids = numbers(rng, len(times))
    common: dict[str, int] = {
        "relay": int(population.home[place]),
        "src_twin": told.twin,
        "src_session": STORMY,
    }
    rows.add(schema.SESSION_OPEN, event_time=times, uid=uids, **common)
    # Each session lasts half of the time until the next one.
    lengths = np.append(np.diff(times) // 2, SECOND_US)
    rows.add(
        schema.SESSION_CLOSE,
        event_time=times + lengths,
        latency_us=lengths,
        reason=REASON["client_close"],
        uid=uids,
        **common,
    )
    return rows


def _rows(rng: np.random.Generator, population: Population, times: Column, twins: Column) -> Rows:
    count = len(times)
    uids = numbers(rng, count)
    common: dict[str, Column] = {
        "relay": population.home[twins],
        "src_twin": population.ids[twins],
        "src_session": population.session[twins],
        "uid": uids,
    }
    rows = Rows()
    rows.add(schema.SESSION_OPEN, event_time=times, **common)
    lengths_s = rng.lognormal(np.log(TYPICAL_LENGTH_S), 1.2, count).clip(1, LONGEST_S)
    lengths = (lengths_s * SECOND_US).astype(np.int64)
    ends = np.array([REASON[name] for name in _ENDS])[rng.integers(0, len(_ENDS), count)]
    closed = rng.random(count) >= NEVER_CLOSED
    rows.add(
        schema.SESSION_CLOSE,
        event_time=(times + lengths)[closed],
        latency_us=lengths[closed],
        reason=ends[closed],
        **{name: column[closed] for name, column in common.items()},
    )
    return rows
