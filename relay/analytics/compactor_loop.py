"""The loop that runs the compactor until it is asked to stop.

After a failure, such as a full disk, the loop tries again after a pause that doubles each time. It
logs an error when the trouble begins, not at each retry. When it is asked to stop, it converts the
segments that the workers, which end before it, closed last.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from proto.limits.backoff import Backoff
from relay.analytics.compactor import AnotherCompactorError, Compactor, Work, alone
from relay.analytics.lake import Lake

LOOK_EVERY_S: Final = 0.25
"""Seconds between two searches for closed segments, which delay the events."""

LATTICE_EVERY_S: Final = 1.0
LATTICE_RETRY_S: Final = 30.0
"""Seconds until Redis is asked again after it did not answer.

Each such attempt delays the segments for seconds."""

MERGE_EVERY_S: Final = 60.0

RETAIN_EVERY_S: Final = 3_600.0
"""Seconds between two removals of old days. The first one comes this long after the start, when a
machine that has just booted has set its clock."""

LAST_LOOK_S: Final = 5.0
"""Longest time that the conversion of segments delays a stop, in seconds."""

ALONE_EVERY_S: Final = 1.0
RETRY: Final = Backoff(first_s=1.0, longest_s=60.0)

logger = logging.getLogger("relay.analytics.compactor")


def compact(
    root: Path, config: Any, stop: threading.Event, client: Redis | None = None, relay: str = ""
) -> None:
    """Compact a lake until `stop` is set.

    Args:
        root: root folder of the lake.
        config: section `analytics` of the settings.
        stop: event that asks the loop to end.
        client: client of the Redis that has events of the lattice; None: they are not recorded.
        relay: name of this relay.
    """
    lake = Lake(root)
    told = False
    while not stop.is_set():
        try:
            with alone(lake):
                Loop(lake, config, stop, client, relay).run()
                return
        except AnotherCompactorError as error:
            if not told:
                logger.info("waiting: %s", error)
                told = True
            stop.wait(ALONE_EVERY_S)


class Loop:
    """Loop of a compactor that holds the lock of its lake."""

    def __init__(
        self,
        lake: Lake,
        config: Any,
        stop: threading.Event,
        client: Redis | None,
        relay: str,
    ) -> None:
        self._stop = stop
        self._client = client
        self._relay = relay
        self._take_in_at = 0.0
        self._is_redis_away = False
        self._stop_by: float | None = None
        """Time at which the last conversion ends after a stop was requested."""
        self._compactor = Compactor(
            lake,
            keep_days=config.keep_days,
            segments_max_bytes=config.segments_max_bytes,
            flush_s=config.flush_ms / 1000,
            stopping=self._stopping,
        )
        self._failures = 0
        self._said: dict[str, str] = {}

    def run(self) -> None:
        """Run until the loop is asked to stop, then convert once more."""
        merge_at = time.monotonic()
        retain_at = merge_at + RETAIN_EVERY_S
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            now = time.monotonic()
            self._say("segments", work := self._compactor.convert())
            self._failures = self._failures + 1 if work.trouble else 0
            pause_s = RETRY.delay_s(self._failures, random.random) or LOOK_EVERY_S
            if now >= self._take_in_at:
                self._take_in()
            if now >= merge_at:
                merge_at = now + MERGE_EVERY_S
                self._say("merging", self._compactor.merge())
            if now >= retain_at:
                retain_at = now + RETAIN_EVERY_S
                self._say("retention", self._compactor.retain())
        self._say("segments", self._compactor.convert())
        if not self._is_redis_away:
            self._take_in()

    def _take_in(self) -> None:
        """Take the events of the lattice from Redis into the lake."""
        if self._client is None:
            return
        try:
            self._say("lattice", self._compactor.take_in(self._client, self._relay))
            self._is_redis_away = False
        except RedisError as error:
            logger.debug("events of the lattice wait: %s", error)  # others report it
            self._is_redis_away = True
        pause_s = LATTICE_RETRY_S if self._is_redis_away else LATTICE_EVERY_S
        self._take_in_at = time.monotonic() + pause_s

    def _stopping(self) -> bool:
        if not self._stop.is_set():
            return False
        now = time.monotonic()
        if self._stop_by is None:
            self._stop_by = now + LAST_LOOK_S
        return now > self._stop_by

    def _say(self, what: str, work: Work) -> None:
        before = self._said.get(what, "")
        if work.trouble and work.trouble != before:
            logger.error("%s", work.trouble)
        elif before and not work.trouble:
            logger.info("%s: works again", what)
        self._said[what] = work.trouble
        for text in work.unreadable:
            logger.error("%s", text)
