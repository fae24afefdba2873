"""What a process of the lattice tells the operator site, in Redis (`proto.lattice.state`)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.bridge.counts import BOUNDS_MS, Counts
from proto.lattice import state
from proto.lattice.state import CallField, Seen

logger = logging.getLogger(__name__)

MAX_CALL_FIELDS: Final = 50_000
"""Of one minute; what is beyond is not counted."""


class Report:
    """Tells Redis each second how a process is doing.

    Args:
        redis: of the relay.
        kind: of the process.
        state: returns what the process says of itself, JSON values by name.
        counts: of calls; None: it makes none.
    """

    def __init__(
        self,
        redis: Redis,
        kind: str,
        state: Callable[[], Mapping[str, Any]],
        counts: Counts | None = None,
    ) -> None:
        self.id = f"{kind}-{os.getpid()}-{secrets.token_hex(4)}"
        self._redis = redis
        self._kind = kind
        self._state = state
        self._counts = counts
        self._began = time.time()
        self._fields: dict[int, dict[str, float]] = {}  # not told yet, by minute

    async def keep(self) -> None:
        """Tell until cancelled; what cannot be told is told later."""
        while True:
            try:
                await self.tell()
            except RedisError as error:
                logger.warning("nothing is reported: %s", error)
            await asyncio.sleep(state.REPORT_EVERY_S)

    async def tell(self) -> None:
        """Tell now.

        Raises:
            RedisError: Redis does not answer; the counts are kept.
        """
        self._collect()
        key = state.process_key(self.id)
        values = {"kind": self._kind, "pid": os.getpid(), "started": self._began, **self._state()}
        minutes = dict(self._fields)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping={name: json.dumps(value) for name, value in values.items()})
            pipe.expire(key, state.PROCESS_TTL_S)
            for minute, fields in minutes.items():
                name = state.calls_key(minute)
                for field, count in fields.items():
                    pipe.hincrbyfloat(name, field, count)
                pipe.expire(name, state.CALLS_TTL_S)
            await pipe.execute()
        for minute in minutes:
            self._fields.pop(minute, None)

    async def saw(self, what: Seen, rows: Mapping[str, Any]) -> None:
        """Tell what there is of something, by keys; what is not there is gone.

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
        if self._counts is None:
            return
        fields = self._fields.setdefault(int(time.time() // 60), {})
        for key, row in self._counts.take().items():
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
