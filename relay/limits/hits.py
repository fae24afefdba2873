"""Who runs into limits most, over the last hour: twins, and the addresses they come from.

Workers count what they refuse and add it to sorted sets in Redis each second, one set for each
minute, with the heaviest names only (`relay.sessions.hits`). So a figure is live within a second or
two and never too low for who matters, and it may be too high by a five-hundredth of a minute's
refusals where more than five hundred names were refused in that minute.
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
    """A twin that was refused messages.

    Attributes:
        messages: how many were over its limit.
        banned: whether it is banned now.
        limited: whether it has a limit of its own.
    """

    twin: int
    messages: int
    banned: bool
    limited: bool


@dataclass(frozen=True, slots=True)
class AddressHits:
    """An address that was refused something.

    Attributes:
        messages: over the limit of the twin that sent them.
        handshakes: over the limit of the address, or of one that is banned.
        banned: whether it is banned now, also as a part of a network.
    """

    address: str
    messages: int
    handshakes: int
    banned: bool = False

    @property
    def refused(self) -> int:
        """All of it."""
        return self.messages + self.handshakes


@dataclass(frozen=True, slots=True)
class Top:
    """Those who were refused most, the worst first."""

    twins: list[TwinHits]
    addresses: list[AddressHits]


def top(limit: int = 20, *, minutes: int = MINUTES) -> Top:
    """Who was refused most.

    Args:
        limit: at most so many of each.
        minutes: to look back, the present one included; up to an hour.

    Raises:
        Invalid: a value is out of bounds.
        Away: Redis does not answer.
    """
    wanted = paging.bounded(limit)
    worst = sorted(twins(minutes).items(), key=lambda each: (-each[1], each[0]))[:wanted]
    return Top(described(worst), with_bans(addresses(minutes)[:wanted]))


def twins(minutes: int = MINUTES) -> dict[int, int]:
    """Every twin that was refused messages, with how many.

    Args:
        minutes: to look back, the present one included; up to an hour.

    Raises:
        Away: Redis does not answer.
    """
    found = _sums("twin", minutes)
    return {int(name): count for name, count in found.items() if name.isdecimal()}


def described(refused: Iterable[tuple[int, int]]) -> list[TwinHits]:
    """Twins and what they were refused, with what is decided about them; in the same order."""
    listed = list(refused)
    decided = TwinLimit.objects.in_bulk([twin for twin, _ in listed])
    return [_twin(twin, count, decided.get(twin)) for twin, count in listed]


def addresses(minutes: int = MINUTES) -> list[AddressHits]:
    """Every address that was refused something, the worst first.

    Args:
        minutes: as above.

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
    """The same addresses, with whether each is banned."""
    banned = address_bans.in_force()
    return [replace(each, banned=banned.covers(each.address.partition("/")[0])) for each in found]


def of_twin(twin: int) -> list[tuple[int, int]]:
    """Messages of one twin that were refused, by minute (unix seconds), the latest first.

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
