"""Event rows that a process of the lattice passes to the lake of the relay.

Adding a row packs a few numbers and never waits. Every few seconds, or sooner when there are many,
rows are sent to Redis as one batch (`proto.lattice.recording`). While Redis or the lake does not
keep up, rows are kept up to a limit; further ones are lost and counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from proto.lattice.recording import (
    MAX_BATCHES,
    MAX_ROWS,
    MAX_SHAPES,
    NO_LATENCY,
    NO_SIZE,
    NO_TWIN,
    ROW,
    STREAM,
    Batch,
    Shape,
    uid_of,
)

TELL_EVERY_S: Final = 10.0
"""Seconds between two batches: each batch becomes a file of the lake, so it should not be tiny."""
FULL_ROWS: Final = MAX_ROWS // 2
"""Number of rows at which a batch is sent before its time."""
END_S: Final = 2.0
MAX_TWIN: Final = 2**32 - 1

logger = logging.getLogger(__name__)


class Events:
    """Event rows that are not sent yet.

    Attributes:
        lost: number of rows that were lost since the start.

    Args:
        redis: Redis of the relay.
        clock: function that returns monotonic seconds.
    """

    def __init__(self, redis: Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self.lost = 0
        self._redis = redis
        self._clock = clock
        self._told_s = clock()
        self._told_lost = 0
        self._shapes: dict[Shape, int] = {}
        self._rows = bytearray()
        self._waiting: Batch | None = None

    def add(
        self,
        shape: Shape,
        at: float,
        invocation_id: str = "",
        size: int = 0,
        answer: int | None = None,
        latency_us: int = NO_LATENCY,
        twin: int = NO_TWIN,
    ) -> None:
        """Add a row.

        Args:
            shape: fields that it has in common with other rows.
            at: time of the event, in seconds since 1970.
            invocation_id: id of the invocation.
            size: size of its payload, or of the message that was seen, in bytes.
            answer: size of the answer, in bytes; None: the call has no answer.
            latency_us: latency of the call, in microseconds.
            twin: number of the twin that calls or is called.
        """
        if len(self._rows) >= MAX_ROWS * ROW.size:
            self.lost += 1
            return
        number = self._shapes.get(shape)
        if number is None:
            number = self._number(shape)
        self._rows += ROW.pack(
            int(at * 1e6),
            uid_of(invocation_id),
            latency_us,
            min(size, NO_SIZE),
            NO_SIZE if answer is None else min(answer, NO_SIZE - 1),
            twin if 0 <= twin <= MAX_TWIN else NO_TWIN,
            number,
        )

    async def tell(self, *, now: bool = False) -> None:
        """Send the rows, if there are many or the last batch was long ago.

        A batch may be sent twice, if the connection breaks before its answer arrives.

        Args:
            now: whether to send them in any case.

        Raises:
            RedisError: Redis does not answer; the rows are kept.
        """
        moment = self._clock()
        is_due = moment - self._told_s >= TELL_EVERY_S or len(self._rows) >= FULL_ROWS * ROW.size
        if self._waiting is None and (now or is_due):
            self._waiting = self._take()
            self._told_s = moment
        if self._waiting is None or await self._redis.xlen(STREAM) >= MAX_BATCHES:
            return
        fields: dict[Any, Any] = {**self._waiting.encode()}
        await self._redis.xadd(STREAM, fields)
        self._waiting = None

    async def finish(self) -> None:
        """Send the last rows, waiting at most `END_S` seconds; report those that are lost."""
        why = "the lake does not keep up"
        try:
            async with asyncio.timeout(END_S):
                for _ in "waiting", "added since":
                    await self.tell(now=True)
        except (RedisError, TimeoutError) as error:
            why = str(error) or "Redis does not answer"
        left = len(self._rows) + len(self._waiting.rows if self._waiting else b"")
        if left:
            logger.warning("%d events are lost: %s", left // ROW.size, why)

    def _take(self) -> Batch | None:
        if not self._rows:
            return None
        if lost := self.lost - self._told_lost:
            logger.warning("%d events of invocations are lost: the lake does not keep up", lost)
        batch = Batch([*self._shapes], bytes(self._rows), lost)
        self._told_lost = self.lost
        self._shapes = {}
        self._rows = bytearray()
        return batch

    def _number(self, shape: Shape) -> int:
        known = shape.cut()
        if len(self._shapes) >= MAX_SHAPES and known not in self._shapes:
            known = known.without_names()  # few: one for each kind and reason
        return self._shapes.setdefault(known, len(self._shapes))
