"""Records the history in two threads of the operator site's process.

The first thread wakes once in each second of Redis' clock, takes a snapshot of what workers and
drainers publish, writes the values to Redis, and sends them to open dashboards. If several sites
run, one of them writes; the others check that it does, and take over when it stops. A second that
is missed is skipped and never caught up, so no backlog can build up.

The second thread does slower work every few seconds: it stores minutes and hours of the history in
the database, and looks up alarms and partner relays. So a database that hangs costs no second.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from channels.layers import get_channel_layer
from django.db import Error as DatabaseError
from django.db import connections
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from relay.history import frames, keeping, seconds
from relay.history.frames import Surroundings
from relay.history.packing import Values
from relay.history.sampling import Sampler
from relay.history.surroundings import Watch
from relay.ops import load
from relay.ops.redis_client import client

logger = logging.getLogger(__name__)

WRITING_AT_S: Final = 0.05
"""Seconds into each second of Redis' clock at which the site that writes takes its snapshot."""
STANDING_BY_AT_S: Final = 0.35
"""Seconds into each second of Redis' clock at which other sites check whether it was written."""
SLOW_S: Final = 5.0
PRUNE_S: Final = 3600.0
STOP_S: Final = 5.0
PUBLISH_TIMEOUT_S: Final = 0.5


class Recorder:
    """The recorder's threads and their state."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sampler = Sampler()
        self._writing = False
        self._wrote = self._looked = 0  # seconds of Redis' clock
        self._watch = Watch()
        self._around = Surroundings()
        self._ahead_s = 0.0  # by which Redis' clock is ahead of ours
        self._minutes_from = self._hours_from = 0
        self._pruned_at = 0.0
        self._told: set[str] = set()  # failures that were logged and still last
        self._reached = False  # whether Redis answered at least once

    def start(self) -> None:
        """Start the threads."""
        for name, work in (("history", self._run_seconds), ("history upkeep", self._run_slow)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop the threads; wait for each at most `STOP_S` seconds."""
        self._ended.set()
        for thread in self._threads:
            thread.join(STOP_S)

    # --- seconds ------------------------------------------------------------------------------

    def record(self) -> tuple[int, Values] | None:
        """Take a snapshot and write the current second, unless another site has written it.

        Returns:
            The second and its values; None if this site wrote nothing.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        redis = client()
        now, last = self._clock_of_redis(), seconds.newest(redis)
        self._looked = now
        if last is not None and last >= now:
            self._writing = self._writing and last == self._wrote
            if last >= now + seconds.AHEAD_S:
                dropped = seconds.clock_was_set_back(redis, now)
                logger.warning("history: the clock was set back, %d seconds dropped", dropped)
            return None
        values = self._sampler.sample(load.look(redis, partners=False))
        self._writing = seconds.put(redis, now, values)
        if not self._writing:
            return None
        self._wrote = now
        return now, values

    def _run_seconds(self) -> None:
        with asyncio.Runner() as runner:
            while not self._ended.wait(self._pause_s()):
                try:
                    written = self.record()
                    self._over("seconds")
                except (RedisError, OSError) as error:
                    self._tell("seconds", f"history: no seconds are kept: {error}", error)
                    continue
                except Exception:
                    self._broken("seconds")
                    continue
                if written is None:
                    continue
                try:
                    text = frames.encode(*written, self._around)
                    runner.run(_publish(text))
                    self._over("frames")
                except (RedisError, OSError) as error:
                    self._tell("frames", f"history: open pages are not told: {error!r}", error)
                except Exception:
                    self._broken("frames")

    def _clock_of_redis(self) -> int:
        whole, micro = client().time()
        self._ahead_s = whole + micro / 1e6 - self._clock()
        return int(whole)

    def _pause_s(self) -> float:
        """Return the seconds until this site's turn in the next second."""
        wanted = WRITING_AT_S if self._writing else STANDING_BY_AT_S
        now = self._clock() + self._ahead_s
        pause_s = self._looked + 1 + wanted - now
        return pause_s if 0 < pause_s < 2 else (wanted - now) % 1.0

    # --- slow work ----------------------------------------------------------------------------

    def keep(self) -> None:
        """Store minutes and hours that are over, and delete old ones.

        Raises:
            redis.exceptions.RedisError, django.db.Error: a store does not answer.
        """
        now = self._clock() + self._ahead_s
        redis = client()
        # Start over also if the clock was set back.
        first = self._minutes_from if 0 < self._minutes_from <= now else int(now) - seconds.KEPT_S
        self._minutes_from = keeping.roll_up_minutes(
            lambda low, high: seconds.read(redis, low, high), first, now
        )
        first = self._hours_from if 0 < self._hours_from <= now else int(now) - keeping.WEEK_S
        self._hours_from = keeping.roll_up_hours(first, now)
        if not 0 <= now - self._pruned_at < PRUNE_S:
            keeping.prune(now)
            self._pruned_at = now

    def _run_slow(self) -> None:
        while True:
            for name, work in (("surroundings", self._look_around), ("minutes", self.keep)):
                try:
                    work()
                    self._over(name)
                except (RedisError, DatabaseError, OSError) as error:
                    self._tell(name, f"history: {name} have to wait: {error}", error)
                except Exception:
                    self._broken(name)
            connections.close_all()
            if self._ended.wait(SLOW_S):
                return

    def _look_around(self) -> None:
        self._around = self._watch.look()

    # --- the log ------------------------------------------------------------------------------

    def _tell(self, what: str, text: str, error: Exception) -> None:
        if not self._reached and isinstance(error, RedisConnectionError | RedisTimeoutError):
            logger.debug("%s", text)  # the relay's start reports it
        elif what not in self._told:
            self._told.add(what)
            logger.warning("%s", text)

    def _broken(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.exception("history: %s", what)

    def _over(self, what: str) -> None:
        self._reached = True
        if what in self._told:
            self._told.discard(what)
            logger.info("history: %s are kept again", what)


async def _publish(text: str) -> None:
    layer: Any = get_channel_layer(frames.LAYER)
    async with asyncio.timeout(PUBLISH_TIMEOUT_S):
        await layer.group_send(frames.GROUP, {"type": frames.MESSAGE, "text": text})
