"""Incidents that a history hides for the jobs to find, drawn before anything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from relay.analytics.synthetic.population import Population

HOUR_US: Final = 3_600 * 1_000_000
BASELINE_HOURS: Final = 168
"""Hours of history that an anomaly is compared with; earlier hours cannot be anomalies."""
BURST: Final = (200, 600)
"""Bounds of the messages of a burst, all in one hour of a twin that is quiet otherwise."""
STORM_OPENS: Final = (5, 40)
STORM_GAP_US: Final = (1_000_000, 120_000_000)
RESTARTED_SESSIONS: Final = 2_000


@dataclass(frozen=True)
class Burst:
    """A twin that sends many messages in one hour.

    Attributes:
        twin: number of the twin.
        hour: hour of the history, from 0.
        messages: number of messages.
    """

    twin: int
    hour: int
    messages: int


@dataclass(frozen=True)
class Storm:
    """A twin that reconnects again and again with the same session name.

    Attributes:
        twin: number of the twin.
        times_us: times of the connections, in microseconds since 1970.
    """

    twin: int
    times_us: tuple[int, ...]

    @property
    def hour_us(self) -> int:
        """Start of the hour of the first connection."""
        return self.times_us[0] // HOUR_US * HOUR_US


@dataclass(frozen=True)
class Restart:
    """A relay whose twins all reconnect at once.

    Attributes:
        relay: index of the relay.
        at_us: time of the restart, in microseconds since 1970.
        sessions: maximum number of twins that reconnect.
    """

    relay: int
    at_us: int
    sessions: int


@dataclass(frozen=True)
class Incidents:
    """All incidents of a history."""

    bursts: list[Burst]
    storms: list[Storm]
    restarts: list[Restart]


def draw(
    rng: np.random.Generator,
    population: Population,
    start_us: int,
    hours: int,
    *,
    bursts: int,
    storms: int,
    restarts: int,
    relays: int,
) -> Incidents:
    """Draw the given number of each incident; a history of at most a week has no bursts."""
    quiet = population.ids[population.quiet(rng, bursts + storms)]
    chosen = quiet.tolist()
    possible = hours - BASELINE_HOURS
    end_us = start_us + hours * HOUR_US
    return Incidents(
        bursts=[
            Burst(
                chosen.pop(),
                BASELINE_HOURS + int(rng.integers(0, possible)),
                int(rng.integers(*BURST)),
            )
            for _ in range(min(bursts, len(chosen)) if possible > 0 else 0)
        ],
        storms=[
            _storm(rng, chosen.pop(), start_us, end_us) for _ in range(min(storms, len(chosen)))
        ],
        restarts=[
            Restart(
                int(rng.integers(0, relays)),
                start_us + int(rng.integers(0, (end_us - start_us) * 9 // 10)),
                min(RESTARTED_SESSIONS, len(population) // 50 + 1),
            )
            for _ in range(restarts)
        ],
    )


def _storm(rng: np.random.Generator, twin: int, start_us: int, end_us: int) -> Storm:
    opens = int(rng.integers(*STORM_OPENS, endpoint=True))
    longest_us = STORM_OPENS[1] * STORM_GAP_US[1]
    first = start_us + int(rng.integers(0, max(end_us - start_us - longest_us, 1)))
    gaps = rng.integers(*STORM_GAP_US, opens - 1)
    times = first + np.concatenate([[0], np.cumsum(gaps)])
    return Storm(twin, tuple(int(time) for time in times))
