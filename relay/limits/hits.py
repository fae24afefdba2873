"""Twins and addresses that exceed limits most, over the last hour.

Workers count what they refuse and add it each second to sorted sets in Redis, one set for each
minute, which keep only the names with the highest counts (`relay.sessions.hits`). So a count is up
to date within a second or two, and never too low for the names that matter. It may be too high by a
five-hundredth of a minute's refusals, if more than five hundred names were refused in that minute.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.limits import addresses as address_bans
from relay.limits.models import TwinLimit
from relay.ops import paging
from relay.ops.redis_client import client, text
from relay.queues import keys

MINUTES: Final = 60


@dataclass(frozen=True, slots=True)
class TwinHits:
    """A twin whose messages were refused.

    Attributes:
        messages: number of messages over its limit.
        banned: whether it is banned now.
        limited: whether it has a limit of its own.
    """

    twin: int
    messages: int
    banned: bool
    limited: bool


@dataclass(frozen=True, slots=True)
class AddressHits:
    """An address whose messages or handshakes were refused.

    Attributes:
        messages: number of messages over the limit of the twin that sent them.
        handshakes: number of handshakes over the limit of the address, or while it was banned.
        banned: whether it is banned now, also as a part of a network.
    """

    address: str
    messages: int
    handshakes: int
    banned: bool = False

    @property
    def refused(self) -> int:
        """Number of refused messages and handshakes."""
        return self.messages + self.handshakes


@dataclass(frozen=True, slots=True)
class Top:
    """Twins and addresses with the most refusals, the most refused first."""

    twins: list[TwinHits]
    addresses: list[AddressHits]


def top(limit: int = 20, *, minutes: int = MINUTES) -> Top:
    """Return the twins and addresses with the most refusals.

    Args:
        limit: most twins and most addresses to return.
        minutes: minutes to look back, including the present one; up to an hour.

    Raises:
        Invalid: a value is out of bounds.
        Away: Redis does not answer.
    """
    wanted = paging.bounded(limit)
    worst = sorted(twins(minutes).items(), key=lambda each: (-each[1], each[0]))[:wanted]
    return Top(described(worst), with_bans(addresses(minutes)[:wanted]))


def twins(minutes: int = MINUTES) -> dict[int, int]:
    """Return the number of refused messages of each twin that has any.

    Args:
        minutes: minutes to look back, including the present one; up to an hour.

    Raises:
        Away: Redis does not answer.
    """
    found = _sums("twin", minutes)
    return {int(name): count for name, count in found.items() if name.isdecimal()}


def described(refused: Iterable[tuple[int, int]]) -> list[TwinHits]:
    """Add to twins and their counts whether they are banned or limited, in the same order."""
    listed = list(refused)
    decided = TwinLimit.objects.in_bulk([twin for twin, _ in listed])
    return [_twin(twin, count, decided.get(twin)) for twin, count in listed]


def addresses(minutes: int = MINUTES) -> list[AddressHits]:
    """Return every address with refusals, the most refused first.

    Args:
        minutes: as in `twins`.

    Raises:
        Away: Redis does not answer.
    """
    messages, handshakes = _sums("address", minutes), _sums("handshake", minutes)
    found = [
        AddressHits(name, messages.get(name, 0), handshakes.get(name, 0))
        for name in messages.keys() | handshakes.keys()
    ]
    return sorted(found, key=lambda each: (-each.refused, each.address))


def with_bans(found: Iterable[AddressHits]) -> list[AddressHits]:
    """Add to addresses whether each is banned."""
    banned = address_bans.in_force()
    return [replace(each, banned=banned.covers(each.address.partition("/")[0])) for each in found]


def of_twin(twin: int) -> list[tuple[int, int]]:
    """Return the refused messages of one twin by minute (unix seconds), the latest first.

    Raises:
        Away: Redis does not answer.
    """
    last = int(time.time()) // 60
    minutes = range(last, last - MINUTES, -1)
    try:
        with client().pipeline(transaction=False) as pipe:
            for minute in minutes:
                pipe.zscore(keys.hits("twin", minute), str(twin))
            scores: list[Any] = pipe.execute()
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    return [(60 * minute, int(score or 0)) for minute, score in zip(minutes, scores, strict=True)]


def _sums(kind: str, minutes: int) -> dict[str, int]:
    last, back = int(time.time()) // 60, min(max(1, minutes), MINUTES)
    names = [keys.hits(kind, minute) for minute in range(last, last - back, -1)]
    try:
        found: Any = client().zunion(names, withscores=True)
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    return {text(name): int(count) for name, count in found}


def _twin(twin: int, messages: int, decided: TwinLimit | None) -> TwinHits:
    return TwinHits(
        twin=twin,
        messages=messages,
        banned=bool(decided and decided.ban_holds()),
        limited=bool(decided and decided.count is not None),
    )
