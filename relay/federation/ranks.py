"""Ranks of relays by their recent failures, as all drainers and workers together know them.

The times of failures are in Redis, one sorted set for each domain; `proto.limits.ranking` computes
the ranks. A process reads the times of a domain at most once a second, and adds its own at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from proto.limits.ranking import MAX_FAILURES, Ranking
from redispipe import resp
from relay.queues import keys

Submit = Callable[[bytes, Callable[[Any], None]], None]

FRESH_S: Final = 1.0
"""Seconds for which times that were read are used."""


class Ranks:
    """The ranker of one process."""

    def __init__(
        self, submit: Submit, period_s: float, shuffle: Callable[[list[str]], None]
    ) -> None:
        """
        Args:
            submit: sends commands, and calls a function with the reply.
            period_s: seconds for which a failure counts.
            shuffle: puts a list in random order.
        """
        self._submit = submit
        self._ranking = Ranking(period_s)
        self._shuffle = shuffle
        self._read_at: dict[str, float] = {}
        self._serial = 0

    def order(self, relays: tuple[str, ...], now: float) -> Iterable[str]:
        """Return the relays of a twin, the most reliable first."""
        if len(relays) < 2:
            return relays
        for relay in relays:
            if now - self._read_at.get(relay, 0.0) >= FRESH_S:
                self.read(relay, now)
        return self._ranking.order(relays, now, self._shuffle)

    def failed(self, relay: str, now: float) -> None:
        """Record a failed attempt, in memory and in Redis."""
        self._ranking.fail(relay, now)
        self._serial += 1
        name = keys.failures(relay)
        period_s = self._ranking.period_s
        # Members have to differ, even between processes that fail within one microsecond.
        member = f"{now:.6f}-{id(self):x}-{self._serial}"
        commands = (
            resp.command("ZADD", name, f"{now:.6f}", member),
            resp.command("ZREMRANGEBYSCORE", name, "-inf", f"{now - period_s:.6f}"),
            resp.command("ZREMRANGEBYRANK", name, 0, -MAX_FAILURES - 1),
            resp.command("EXPIRE", name, int(period_s) + 1),
        )
        for command in commands:
            self._submit(command, _ignore)

    def read(self, relay: str, now: float) -> None:
        """Request the times of one relay."""
        if len(self._read_at) >= self._ranking.max_names:
            self._read_at.clear()
        self._read_at[relay] = now

        def answered(reply: Any) -> None:
            if isinstance(reply, list):
                self._ranking.replace(relay, [float(score) for score in reply[1::2]])

        oldest = f"({now - self._ranking.period_s:.6f}"
        self._submit(
            resp.command("ZRANGEBYSCORE", keys.failures(relay), oldest, "+inf", "WITHSCORES"),
            answered,
        )


def _ignore(reply: Any) -> None:
    """Ignore the reply: the failure is in memory as well."""
