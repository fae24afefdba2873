"""Reports of a lattice process for the operator site, in Redis (`proto.lattice.state`)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.bridge.counts import BOUNDS_MS, REFUSED, Counts
from lattice.process import goes_on
from lattice.recording import Events
from proto.lattice import state
from proto.lattice.state import CallField, Seen, Total, total_field

logger = logging.getLogger(__name__)

MAX_CALL_FIELDS: Final = 50_000
"""Maximum number of fields for one minute; further ones are not counted."""


class Report:
    """Writes the state and the counts of a process to Redis each second.

    Args:
        redis: Redis of the relay.
        kind: kind of the process.
        state: function that returns the state of the process, JSON values by name.
        counts: counts of calls; None: the process makes none.
        totals: function that returns counts since the start of the process, by
            `state.total_field`.
        events: events of invocations; None: they are not recorded.
    """

    def __init__(
        self,
        redis: Redis,
        kind: str,
        state: Callable[[], Mapping[str, Any]],
        counts: Counts | None = None,
        totals: Callable[[], Mapping[str, int]] = dict,
        events: Events | None = None,
    ) -> None:
        self.id = f"{kind}-{os.getpid()}-{secrets.token_hex(4)}"
        self._redis = redis
        self._kind = kind
        self._state = state
        self._counts = counts
        self._totals = totals
        self._totalled: dict[str, int] = {}  # last totals, already in `_added` or in Redis
        self._added: Counter[str] = Counter()  # increases that are not in Redis yet
        self._events = events
        self._began = time.time()
        self._fields: dict[int, dict[str, float]] = {}  # not in Redis yet, by minute

    async def keep(self) -> None:
        """Write reports until cancelled; counts that cannot be written are kept until later."""
        while goes_on():
            try:
                await self.tell()
                if self._events is not None:
                    await self._events.tell()
            except RedisError as error:
                logger.warning("cannot report to Redis: %s", error)
            await asyncio.sleep(state.REPORT_EVERY_S)

    async def tell(self) -> None:
        """Write a report now.

        Raises:
            RedisError: Redis does not answer; the counts are kept.
        """
        self._collect()
        key = state.process_key(self.id)
        values = {"kind": self._kind, "pid": os.getpid(), "started": self._began, **self._state()}
        minutes, added = dict(self._fields), self._added
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping={name: json.dumps(value) for name, value in values.items()})
            pipe.expire(key, state.PROCESS_TTL_S)
            now = time.time()
            pipe.zadd(state.PROCESSES, {self.id: now})
            pipe.zremrangebyscore(state.PROCESSES, "-inf", now - state.PROCESS_LISTED_S)
            for total, increase in added.items():
                pipe.hincrby(state.TOTALS, total, increase)
            for minute, fields in minutes.items():
                name = state.calls_key(minute)
                for field, count in fields.items():
                    pipe.hincrbyfloat(name, field, count)
                pipe.expire(name, state.CALLS_TTL_S)
            await pipe.execute()
        added.clear()
        for minute in minutes:
            self._fields.pop(minute, None)

    async def finish(self) -> None:
        """Send the remaining events, before the process ends."""
        if self._events is not None:
            await self._events.finish()

    async def saw(self, what: Seen, rows: Mapping[str, Any]) -> None:
        """Replace all rows of one kind of lattice contents, such as hosts, by the given ones.

        Raises:
            RedisError: Redis does not answer.
        """
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(what)
            if rows:
                pipe.hset(what, mapping={key: state.encode(row) for key, row in rows.items()})
                pipe.expire(what, state.SEEN_TTL_S)
            await pipe.execute()

    def _collect(self) -> None:
        totals = dict(self._totals())
        if self._events is not None:
            totals[Total.UNRECORDED] = self._events.lost
        for name, total in totals.items():
            if increase := total - self._totalled.get(name, 0):
                self._added[name] += increase
                self._totalled[name] = total
        if self._counts is None:
            return
        fields = self._fields.setdefault(int(time.time() // 60), {})
        for key, row in self._counts.take().items():
            self._add_outcomes(key.direction, row.outcomes)
            told: dict[str, float] = dict(row.outcomes)
            told["ms"] = round(row.total_ms, 3)
            for bound, count in zip((*BOUNDS_MS, "inf"), row.classes, strict=True):
                if count:
                    told[f"<{bound}"] = count
            for what, number in told.items():
                field = CallField(*key, what).encode()
                if field in fields or len(fields) < MAX_CALL_FIELDS:
                    fields[field] = fields.get(field, 0) + number
        while len(self._fields) > state.CALLS_TTL_S // 60:
            del self._fields[next(iter(self._fields))]

    def _add_outcomes(self, direction: str, outcomes: Mapping[str, int]) -> None:
        for outcome, count in outcomes.items():
            if outcome in REFUSED:
                self._added[total_field(Total.REFUSED, direction, outcome)] += count
                outcome = "refused"
            self._added[total_field(Total.CALLS, direction, outcome)] += count


async def told(redis: Redis, kind: str) -> list[dict[str, Any]]:
    """Return the reported states of the live processes of a kind.

    Raises:
        RedisError: Redis does not answer.
    """
    found: Any = await redis.zrange(state.PROCESSES, 0, -1)
    ids = [each.decode() for each in found]
    async with redis.pipeline(transaction=False) as pipe:
        for each in ids:
            if each.startswith(f"{kind}-"):
                pipe.hgetall(state.process_key(each))
        rows = await pipe.execute()
    return [
        {name.decode(): json.loads(value) for name, value in row.items()} for row in rows if row
    ]
