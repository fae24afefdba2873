"""The follower of the chain as a task: one runs at a time, and its events update the mirror.

    chain.follower -> MirrorSink -> the mirror, then the workers (`services.announce`), then the tip

The changes of a batch of blocks are collected until `at` reports that the batch is complete, and
then written at once. Only when the mirror is updated and the workers are notified, the block
becomes the tip from which the next follower starts: if a follower is killed in between, the work is
repeated, but no change is missed.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.db import Error as DatabaseError
from redis import Redis
from redis.exceptions import RedisError

from chain.errors import shortened
from chain.follower import Follower, Progress
from chain.head import Head
from proto.chain.twin import Twin
from relay.ops import background
from relay.ops.lease import Lease
from relay.ops.redis_client import client
from relay.queues import keys
from relay.twins import chain_events, chain_import, chain_state, mirror, services

logger = logging.getLogger(__name__)

TASK: Final = "chain.follow"

LIFE_S: Final = 1800.0
"""Seconds after which another task takes over: the broker would start a longer one again."""

REPORT_S: Final = 1.0


class LeaseLostError(Exception):
    """Another process may follow the chain by now."""


class MirrorSink:
    """Sink of the follower's events, which updates the mirror and notifies the workers."""

    def __init__(self, redis: Redis, lease: Lease) -> None:
        self._redis = redis
        self._lease = lease
        self._changed: list[tuple[Twin, int]] = []
        self._reverted: dict[int, Twin | None] = {}
        self._reverted_at = 0

    def twin_changed(self, twin: Twin, height: int) -> None:
        """Collect a twin that was created or changed."""
        self._changed.append((twin, height))

    def twin_reverted(self, twin_id: int, twin: Twin | None, height: int) -> None:
        """Collect a twin whose change was reverted."""
        # Reverted twins arrive before the changes of the new branch.
        self._reverted[twin_id] = twin
        self._reverted_at = height

    def flush(self, height: int) -> None:
        """Mark all twins stale and request an import, because changes may have been missed."""
        self._check()
        self._changed.clear()
        self._reverted.clear()
        mirror.mark_stale(height)
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(keys.CHAIN, "flushed", height)
            pipe.hincrby(keys.CHAIN_IMPORT, "wanted", 1)
            pipe.hincrby(keys.CHAIN, "flushes", 1)
            chain_events.note(pipe, chain_events.Kind.MISSED, [(0, height)])
            pipe.execute()
        self._announce(None)
        background.start(chain_import.TASK)

    def at(self, head: Head) -> None:
        """Write all collected changes, and then record this block as the tip."""
        self._check()
        changed, reverted = self._changed, self._reverted
        self._changed, self._reverted = [], {}
        stored = 0
        if reverted:
            mirror.keep_reverted(reverted, self._reverted_at)
        if changed:
            stored = mirror.keep_changed(changed)
        ids = {twin.id for twin, _ in changed} | reverted.keys()
        if ids:
            self._announce(sorted(ids))
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(keys.CHAIN, mapping={"height": head.height, "hash": head.hash.hex()})
            reverted_at = [(twin_id, self._reverted_at) for twin_id in reverted]
            chain_events.note(pipe, chain_events.Kind.REVERTED, reverted_at)
            told = [(twin.id, height) for twin, height in changed]
            chain_events.note(pipe, chain_events.Kind.CHANGED, told)
            if changed:
                pipe.hincrby(keys.CHAIN, "stored", stored)
                pipe.hincrby(keys.CHAIN, "updated", len(changed) - stored)
            pipe.execute()

    def _check(self) -> None:
        if not self._lease.held:
            raise LeaseLostError

    def _announce(self, ids: list[int] | None) -> None:
        # A worker that was not notified would use old records, so the block must be repeated.
        if not services.announce(ids):
            raise RedisError("the workers could not be informed of a change")


def follow(life_s: float = LIFE_S) -> bool:
    """Follow the chain until the lease is lost, the worker stops, or for `life_s`.

    Returns:
        Whether it followed; False if another process does.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    redis = client()
    lease = Lease(redis, keys.CHAIN_LEASE)
    if not lease.take():
        return False
    stop, over = threading.Event(), threading.Event()
    lease.keep(stop.set)
    config = settings.RMB.substrate
    try:
        follower = Follower(
            config.urls,
            MirrorSink(redis, lease),
            start=chain_state.read(redis).following.tip,
            catchup_threshold=config.catchup_threshold,
        )
        reporter = Reporter(redis, lambda: follower.progress)
        reporting = threading.Thread(
            target=_report, args=(reporter, stop, over, life_s), name="chain report", daemon=True
        )
        reporting.start()
        try:
            follower.run(stop)
        finally:
            stop.set()
            reporting.join()
            reporter.report()
    except LeaseLostError:
        logger.info("the lease of the chain's follower was lost: another one goes on")
    except (RedisError, DatabaseError) as error:
        logger.error("the chain's follower could not store what it heard: %s", error)
        _count_store_error(redis)
    finally:
        lease.release()
    if over.is_set():
        background.start(TASK)
    return True


class Reporter:
    """Writer of a follower's progress to Redis, for health and metrics."""

    def __init__(
        self,
        redis: Redis,
        progress: Callable[[], Progress],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._progress = progress
        self._clock = clock
        self._told = Progress()

    def report(self) -> None:
        """Write the progress since the last report; if Redis refuses it, the next call does."""
        progress, told = self._progress(), self._told
        fields: dict[Any, Any] = {
            **{"url": progress.url, "error": shortened(progress.last_error)},
            "by": f"{socket.gethostname()}/{os.getpid()}",
        }
        if progress.head_at is not None:
            fields["head_height"] = progress.head_height
            fields["head_at"] = f"{time.time() - (self._clock() - progress.head_at):.3f}"
        try:
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.hset(keys.CHAIN, mapping=fields)
                for name, count in (
                    ("reconnects", max(progress.connections, 1) - max(told.connections, 1)),
                    ("node_errors", progress.failures - told.failures),
                ):
                    if count:
                        pipe.hincrby(keys.CHAIN, name, count)
                pipe.execute()
        except RedisError as error:
            logger.debug("no report of the chain's follower: %s", error)
            return
        self._told = progress


def _report(
    reporter: Reporter, stop: threading.Event, over: threading.Event, life_s: float
) -> None:
    ends = time.monotonic() + life_s
    while not stop.wait(REPORT_S):
        reporter.report()
        if time.monotonic() >= ends:
            over.set()
        if background.stopping.is_set() or over.is_set():
            stop.set()


def _count_store_error(redis: Redis) -> None:
    try:
        redis.hincrby(keys.CHAIN, "store_errors", 1)
    except RedisError as error:
        logger.debug("not counted: %s", error)
