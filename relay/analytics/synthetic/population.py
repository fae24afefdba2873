"""The twins of a history: how much each one sends, its home relay, and its contacts."""

from __future__ import annotations

from typing import Final

import numpy as np

from relay.analytics.synthetic.rows import STORMY, Column

ZIPF: Final = 1.05
"""Exponent: the n-th twin sends n ** -ZIPF times as much as the first one."""
CONTACTS: Final = 4
"""Number of twins of the same relay to which most of a twin's messages go."""
TO_CONTACTS: Final = 0.7
NAMED: Final = 0.2
"""Share of the twins whose session has a name."""


class Population:
    """Twins of a history. Until rows are made, an index into its arrays stands for a twin.

    Attributes:
        ids: number of each twin, which does not depend on its activity.
        home: index of each twin's relay.
        session: code of the name of each twin's session.
    """

    def __init__(self, rng: np.random.Generator, twins: int, relays: int) -> None:
        self.ids = rng.permutation(twins).astype(np.int64) + 1
        weights = np.arange(1, relays + 1) ** -0.5
        self.home = rng.choice(relays, twins, p=weights / weights.sum()).astype(np.int8)
        named = rng.random(twins) < NAMED
        self.session = np.where(named, rng.integers(1, STORMY, twins), 0).astype(np.int8)
        self._shares = _shares(twins)
        self._contacts = np.empty((twins, CONTACTS), np.int64)
        for relay in range(relays):
            members = np.flatnonzero(self.home == relay)
            if len(members):
                drawn = rng.random((len(members), CONTACTS))
                known = np.searchsorted(_shares(len(members)), drawn)
                self._contacts[members] = members[known]

    def __len__(self) -> int:
        return len(self.ids)

    def senders(self, rng: np.random.Generator, count: int) -> Column:
        """Return indices of twins that send messages; active twins are more frequent."""
        return np.searchsorted(self._shares, rng.random(count)).astype(np.int64)

    def receivers(self, rng: np.random.Generator, senders: Column) -> Column:
        """Return the receiver of each sender's message, never the sender itself."""
        count = len(senders)
        known = self._contacts[senders, rng.integers(0, CONTACTS, count)]
        found = np.where(rng.random(count) < TO_CONTACTS, known, self.senders(rng, count))
        return np.where(found == senders, (found + 1) % len(self), found)

    def quiet(self, rng: np.random.Generator, count: int) -> Column:
        """Return indices of different twins that hardly ever send messages."""
        half = len(self) // 2
        return half + rng.permutation(len(self) - half)[:count]


def _shares(count: int) -> Column:
    """Return the cumulative shares of the first 1, 2, ... of `count` twins."""
    sums = np.cumsum(np.arange(1, count + 1) ** -ZIPF)
    return np.asarray(sums / sums[-1])
