"""How far the lake of each machine is behind the recorded events.

Waiting segments are in a folder of one machine, while metrics and alarms cover all machines. So the
process that compacts (a child of the relay, or `rmb_analytics compact`) publishes in Redis what is
waiting on its machine:

    relay:analytics:lakes    <host>: JSON of a `Lag`

The child publishes from a separate thread, so a delay of the compactor does not delay its figures.
A process that has ended publishes nothing: after `SILENT_S`, the time since its last figures counts
as the age of the waiting segments.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from relay.analytics import gaps, segments
from relay.analytics.gaps import Why
from relay.analytics.places import Places
from relay.ops.metric_names import series
from relay.ops.redis_client import text
from relay.queues import keys

TELL_EVERY_S: Final = 5.0
SILENT_S: Final = 150.0
"""Silence of a machine, in seconds, after which it counts as delay. Longer than the time between
two runs of `rmb_analytics compact` that cron starts each minute."""
GONE_S: Final = 3_600.0
"""Silence, in seconds, after which a machine is forgotten, as is a worker."""
MAX_MACHINES: Final = 1_000
LOST_S: Final = 600.0
"""Age of the losses that count, in seconds."""

logger = logging.getLogger("relay.analytics.lag")


class Lag(NamedTuple):
    """What waits on one machine.

    Attributes:
        at: time of these figures, in seconds since 1970.
        age_s: seconds since the oldest waiting segment was closed; 0 if none waits.
        segments: number of closed segments that wait.
        size_bytes: size of these segments.
        lost: events lost within `LOST_S` because of the disk, as far as known.
    """

    at: float
    age_s: float = 0.0
    segments: int = 0
    size_bytes: int = 0
    lost: int = 0

    def silent_s(self, now: float) -> float:
        """Return the seconds since these figures if they are too old; else 0."""
        passed_s = abs(now - self.at)
        return passed_s if passed_s > SILENT_S else 0.0

    def gone(self, now: float) -> bool:
        """Check whether these figures are so old that the machine is probably no longer in use."""
        return abs(now - self.at) > GONE_S


def host() -> str:
    """Return the name of this machine, as in heartbeats of workers."""
    return socket.gethostname()


def look(places: Places, now: float) -> Lag:
    """Return what waits on this machine.

    Raises:
        OSError: the folder cannot be read.
    """
    count, size_bytes, oldest = 0, 0, now
    with contextlib.suppress(FileNotFoundError), os.scandir(places.segments) as entries:
        for entry in entries:
            if not entry.name.endswith(segments.SUFFIX):
                continue
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat()
                count += 1
                size_bytes += found.st_size
                oldest = min(oldest, found.st_mtime)
    lost = gaps.lost_since(places.root, Why.DISK, now - LOST_S)
    return Lag(now, round(now - oldest, 3), count, size_bytes, lost)


def publish(client: Redis, found: Lag) -> None:
    """Publish the figures of this machine, and remove machines that are gone.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    client.hset(keys.LAKES, host(), json.dumps(found._asdict()))
    stored = client.hgetall(keys.LAKES)
    known = parse(stored)
    gone = [
        name for name in stored if (each := known.get(text(name))) is None or each.gone(found.at)
    ]
    if gone:
        client.hdel(keys.LAKES, *gone)


def tell(client: Redis, places: Places, ended: threading.Event) -> None:
    """Publish the figures every few seconds until `ended` is set, then remove them."""
    while True:
        try:
            publish(client, look(places, time.time()))
        except (RedisError, OSError) as error:
            logger.debug("what waits is not told: %s", error)  # readers report it
        if ended.wait(TELL_EVERY_S):
            break
    with contextlib.suppress(RedisError):
        client.hdel(keys.LAKES, host())


def read(client: Redis) -> dict[str, Lag]:
    """Return the last figures of every machine, by host name.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return parse(client.hgetall(keys.LAKES))


def parse(stored: Mapping[Any, Any]) -> dict[str, Lag]:
    """Parse the hash; skip entries of other releases in another format."""
    found = {}
    for name, document in sorted(stored.items())[:MAX_MACHINES]:
        with contextlib.suppress(ValueError, TypeError):
            lag = Lag(**json.loads(document))
            if all(type(value) in (int, float) for value in lag):
                found[text(name)] = lag
    return found


def figures(found: Mapping[str, Lag], now: float | None = None) -> dict[str, float]:
    """Return the metrics of the machines that are not gone."""
    moment = time.time() if now is None else now
    told: dict[str, float] = {}
    for name, each in found.items():
        if not each.gone(moment):
            waits_s = max(each.age_s, each.silent_s(moment))
            told[series("relay_analytics_waiting_seconds", host=name)] = float(waits_s)
            told[series("relay_analytics_waiting_bytes", host=name)] = float(each.size_bytes)
    return told
