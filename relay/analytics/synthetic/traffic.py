"""Rows of an hour's messages: accepted, federated, queued, delivered, dropped, lost, doubled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from relay.analytics.spark import schema
from relay.analytics.synthetic.population import Population
from relay.analytics.synthetic.rows import NULL, REASON, Column, Rows

SECOND_US: Final = 1_000_000
LONGEST_WAIT_US: Final = 3_500 * SECOND_US
"""Longest wait in a queue; less than the hour after which the audit misses a message."""

QUEUED: Final = 0.05
DROPPED: Final = 0.006
REFUSED: Final = 0.0005
FAILED_ONCE: Final = 0.12
"""Share of the messages to the bad relay whose first attempt fails."""
FAILED: Final = 0.01
"""Share of the messages to the bad relay whose attempts all fail."""
RETRY_US: Final = 3 * SECOND_US

SMALLEST_BYTES: Final = 96
LARGEST_BYTES: Final = 65_536

_DROPS: Final = ("expired", "queue_expired", "offline_failfast", "storage_full", "purged")


@dataclass(frozen=True)
class Rates:
    """Rates of failures, in messages per million.

    Attributes:
        lost: messages that are accepted, and have no further event.
        doubled: messages that are delivered twice.
        bad_relay: index of the relay that others often fail to reach; None: no such relay.
    """

    lost: float
    doubled: float
    bad_relay: int | None


@dataclass(frozen=True)
class Traffic:
    """Rows of the messages of an hour.

    Attributes:
        rows: the rows, some of which are later than the hour.
        lost: uids of messages that are lost.
        doubled: uids of messages that are delivered twice, and times of the second delivery.
        settled: uids of messages with an outcome, and times of the first outcome.
    """

    rows: Rows
    lost: Column
    doubled: tuple[Column, Column]
    settled: tuple[Column, Column]


def messages(
    rng: np.random.Generator,
    population: Population,
    rates: Rates,
    times: Column,
    senders: Column,
) -> Traffic:
    """Return rows of messages that are accepted at given times from given twins (their indices)."""
    count = len(times)
    receivers = population.receivers(rng, senders)
    uids = numbers(rng, count)
    origin, final = population.home[senders], population.home[receivers]
    sizes = rng.lognormal(6.2, 1.1, count).astype(np.int64)
    fields: dict[str, Column] = {
        "src_twin": population.ids[senders],
        "dst_twin": population.ids[receivers],
        "src_session": population.session[senders],
        "size_bytes": np.clip(sizes, SMALLEST_BYTES, LARGEST_BYTES),
        "uid": uids,
    }

    rows = Rows()
    rows.add(schema.ACCEPTED, event_time=times, relay=origin, **fields)
    lost = rng.random(count) * 1e6 < rates.lost
    fate = rng.random(count)
    dropped = ~lost & (fate < DROPPED)
    ended = times + (rng.exponential(60, count) * SECOND_US).astype(np.int64).clip(
        1_000, LONGEST_WAIT_US
    )
    drops = np.array([REASON[name] for name in _DROPS])[rng.integers(0, len(_DROPS), count)]

    # To a partner relay: the transfer, with a retry if the first attempt fails, or without success.
    travel = _micros(rng, count, 9.0, 0.5)
    start = times + _micros(rng, count, 5.5, 0.6)
    abroad = ~lost & ~dropped & (origin != final)
    if rates.bad_relay is not None:
        luck = rng.random(count)
        doomed = abroad & (final == rates.bad_relay) & (luck < FAILED)
        again = abroad & (final == rates.bad_relay) & (luck < FAILED_ONCE)
        why = np.where(rng.random(count) < 0.5, REASON["remote_5xx"], REASON["remote_timeout"])
        _out(rows, again, start, travel * 20, why, origin, final, fields)
        start = np.where(again, start + travel * 20 + RETRY_US, start)
        drops = np.where(doomed, why, drops)
        ended = np.where(doomed, start, ended)
        dropped |= doomed
        abroad &= ~doomed
    _out(rows, abroad, start + travel, travel, np.zeros(count, np.int8), origin, final, fields)
    came = np.where(abroad, start + travel, start)
    rows.add(
        schema.FEDERATED_IN,
        event_time=came[abroad],
        relay=final[abroad],
        remote=origin[abroad],
        **_some(fields, abroad),
    )

    kept = ~lost & ~dropped
    waits = kept & (fate < DROPPED + QUEUED)
    wait = (rng.exponential(600, count) * SECOND_US).astype(np.int64)
    wait = wait.clip(SECOND_US, LONGEST_WAIT_US - RETRY_US * 20)
    rows.add(schema.QUEUED, event_time=came[waits], relay=final[waits], **_some(fields, waits))
    arrived = came + np.where(waits, wait, _micros(rng, count, 5.0, 0.8))
    _delivered(rows, kept, times, arrived, final, fields)
    rows.add(
        schema.DROPPED,
        event_time=ended[dropped],
        relay=origin[dropped],
        reason=drops[dropped],
        **_some(fields, dropped),
    )

    doubled = kept & (rng.random(count) * 1e6 < rates.doubled)
    second = arrived + rng.integers(SECOND_US, 60 * SECOND_US, count)
    _delivered(rows, doubled, times, second, final, fields)

    _refusals(rows, rng, population, times, senders)
    outcome = np.where(dropped, ended, arrived)
    return Traffic(
        rows,
        lost=uids[lost],
        doubled=(uids[doubled], second[doubled]),
        settled=(uids[~lost], outcome[~lost]),
    )


def numbers(rng: np.random.Generator, count: int) -> Column:
    """Return random numbers for messages or connections."""
    limits = np.iinfo(np.int64)
    return rng.integers(limits.min, limits.max, count, np.int64, endpoint=True)


def _micros(rng: np.random.Generator, count: int, mean: float, sigma: float) -> Column:
    return rng.lognormal(mean, sigma, count).astype(np.int64) + 1


def _some(fields: dict[str, Column], wanted: Column) -> dict[str, Column]:
    return {name: column[wanted] for name, column in fields.items()}


def _out(
    rows: Rows,
    wanted: Column,
    when: Column,
    took: Column,
    why: Column,
    origin: Column,
    final: Column,
    fields: dict[str, Column],
) -> None:
    rows.add(
        schema.FEDERATED_OUT,
        event_time=when[wanted],
        relay=origin[wanted],
        remote=final[wanted],
        latency_us=took[wanted],
        reason=why[wanted],
        **_some(fields, wanted),
    )


def _delivered(
    rows: Rows,
    wanted: Column,
    since: Column,
    when: Column,
    relay: Column,
    fields: dict[str, Column],
) -> None:
    rows.add(
        schema.DELIVERED,
        event_time=when[wanted],
        relay=relay[wanted],
        latency_us=(when - since)[wanted],
        **_some(fields, wanted),
    )


def _refusals(
    rows: Rows,
    rng: np.random.Generator,
    population: Population,
    times: Column,
    senders: Column,
) -> None:
    """Add rows of messages that were never accepted, and of data that could not be parsed."""
    refused = rng.random(len(times)) < REFUSED
    when, who = times[refused], senders[refused]
    count = len(when)
    limited = rng.random(count) < 0.5
    common: dict[str, Column] = {
        "relay": population.home[who],
        "src_twin": population.ids[who],
        "src_session": population.session[who],
    }
    why = np.where(limited, REASON["limit_count"], REASON["unknown_twin"])
    uids = numbers(rng, count)
    rows.add(
        schema.DROPPED,
        event_time=when,
        dst_twin=len(population) + 1,
        size_bytes=SMALLEST_BYTES,
        reason=why,
        uid=uids,
        **common,
    )
    rows.add(
        schema.LIMIT_HIT,
        event_time=when[limited],
        size_bytes=SMALLEST_BYTES,
        reason=REASON["limit_count"],
        uid=uids[limited],
        **_some(common, limited),
    )
    torn = rng.random(count) < 0.2
    rows.add(
        schema.ERROR,
        event_time=when[torn],
        reason=REASON["unparsable"],
        latency_us=NULL,
        uid=uids[torn],
        **_some(common, torn),
    )
