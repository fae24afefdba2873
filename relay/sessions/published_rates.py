"""Reading the rates that workers publish (`relay.sessions.rates`), for sites and commands.

Reading all of them scans the active sessions and queues in bounded steps, between which Redis
serves other clients: some 150 ms for 50,000 of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from redis import Redis

from relay.ops.redis_client import text
from relay.queues import keys
from relay.sessions.rates import Packed, Rates, unpack

STEP_FIELDS: Final = 1000
_QUEUE: Final = keys.stream("")
_KEY: Final = re.compile(rb"[0-9]{1,20}(:|$)|sbd:")


class Flow(NamedTuple):
    """Messages per second, in and out."""

    rate_in: float = 0.0
    rate_out: float = 0.0

    @property
    def both(self) -> float:
        return self.rate_in + self.rate_out

    def rounded(self) -> Flow:
        """Return it rounded for display, as published rates have seven digits."""
        return Flow(*map(_rounded, self))


class Published(NamedTuple):
    """The rates of active sessions and queues.

    Attributes:
        sessions: rates by session key.
        filled: messages per second that workers store in queues they do not deliver from, by
            session key.
    """

    sessions: dict[str, Packed]
    filled: dict[str, float]

    def of(self, key: str, epoch: int) -> Rates:
        """Return the rates of a connection."""
        known, *rates = self.sessions.get(key, _IDLE)
        return Rates(*map(_rounded, rates)) if known == epoch else Rates()

    def queue(self, key: str) -> Flow:
        """Return the rates at which a queue is filled and delivered from."""
        _, _, out, _, _, stored = self.sessions.get(key, _IDLE)
        return Flow(stored + self.filled.get(key, 0.0), out).rounded()

    def twins(self) -> dict[int, Flow]:
        """Return the sum of each active twin's messages over its sessions."""
        found: dict[str, Flow] = {}
        idle = Flow()
        for key, rates in self.sessions.items():
            twin = key.partition(":")[0]
            if not twin.isdecimal():
                continue  # SBD
            before_in, before_out = found.get(twin, idle)
            found[twin] = Flow(before_in + rates[1], before_out + rates[2])
        return {int(twin): flow for twin, flow in found.items()}


_IDLE: Final[Packed] = (0, 0.0, 0.0, 0.0, 0.0, 0.0)


def read(client: Redis, wanted: Collection[str] | None = None) -> Published:
    """Read the latest rates.

    Args:
        client: connection whose replies are bytes.
        wanted: keys of sessions; None for all.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    found = Published({}, {})
    if wanted is not None and not wanted:
        return found
    boots: Any = client.smembers(keys.WORKERS)
    names = [keys.rates(text(boot)) for boot in boots]
    for fields in _all(client, names) if wanted is None else _some(client, names, wanted):
        _add(found, fields)
    return found


def _add(found: Published, fields: Mapping[bytes, bytes]) -> None:
    """Add the rates of one worker."""
    sessions, filled = found
    for field, value in fields.items():
        rates = unpack(value)
        if rates is None:
            continue
        if field.startswith(_QUEUE):
            key = text(field.removeprefix(_QUEUE))
            filled[key] = filled.get(key, 0.0) + rates[-1]
        elif _KEY.match(field):
            key = text(field)
            if key not in sessions or sessions[key][0] < rates[0]:
                sessions[key] = rates


def _rounded(rate: float) -> float:
    return round(rate, 2)


def owner_of(key: str) -> int | str:
    """Return the twin of a session key, or the key of an SBD client."""
    first, _, rest = key.partition(":")
    return int(first) if first.isdecimal() else rest


def _all(client: Redis, names: Iterable[str]) -> Iterator[Mapping[bytes, bytes]]:
    for name in names:
        fields: dict[bytes, bytes] = {}  # a scan may return a field twice
        cursor: Any = 0
        while True:
            cursor, step = _step(client, name, cursor)
            fields.update(step)
            if not cursor:
                break
        yield fields


def _step(client: Redis, name: str, cursor: Any) -> Any:
    return client.hscan(name, cursor, count=STEP_FIELDS)


def _some(
    client: Redis, names: Iterable[str], wanted: Collection[str]
) -> Iterator[Mapping[bytes, bytes]]:
    fields = [part for key in wanted for part in (key.encode(), keys.stream(key))]
    if not fields:
        return
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hmget(name, fields)
        replies: list[Any] = pipe.execute()
    for reply in replies:
        yield {
            field: value for field, value in zip(fields, reply, strict=True) if value is not None
        }
