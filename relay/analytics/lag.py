"""How far the lake of each machine is behind what is recorded there.

What waits lies in a folder of one machine; metrics and alarms are about all of them. So whoever
compacts, a child of the relay or `rmb_analytics compact`, says in Redis what it leaves:

    relay:analytics:lakes    <host>: JSON of a `Lag`

The child says so from a thread of its own: what holds up the compacting does not keep it from
telling. One that is gone tells nothing: after `SILENT_S` its silence is the age of what waits.
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
"""Longer than from one `rmb_analytics compact` to the next, where cron starts it each minute."""
GONE_S: Final = 3_600.0
"""A machine that was silent for so long is forgotten, as a worker is."""
MAX_MACHINES: Final = 1_000
LOST_S: Final = 600.0
"""How far back losses count."""

logger = logging.getLogger("relay.analytics.lag")


class Lag(NamedTuple):
    """What waits on one machine.

    Attributes:
        at: unix time of the look.
        age_s: since the oldest of the segments that wait was closed; 0 where none does.
        segments: that are closed and wait.
        size_bytes: of them.
        lost: events the disk was in the way of within `LOST_S`, as far as known.
    """

    at: float
    age_s: float = 0.0
    segments: int = 0
    size_bytes: int = 0
    lost: int = 0

    def silent_s(self, now: float) -> float:
        """Time since the look, where that is too long; else 0."""
        passed_s = abs(now - self.at)
        return passed_s if passed_s > SILENT_S else 0.0

    def gone(self, now: float) -> bool:
        """Whether nobody looked for so long that nobody will."""
        return abs(now - self.at) > GONE_S


def host() -> str:
    """What this machine is called, as in heartbeats of workers."""
    return socket.gethostname()


def look(places: Places, now: float) -> Lag:
    """What waits on this machine.

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
    """Say for this machine what was found, and forget machines that are gone.

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
    """Publish every few seconds until it is over, then take it back."""
    while True:
        try:
            publish(client, look(places, time.time()))
        except (RedisError, OSError) as error:
            logger.debug("what waits is not told: %s", error)  # who reads it says so louder
        if ended.wait(TELL_EVERY_S):
            break
    with contextlib.suppress(RedisError):
        client.hdel(keys.LAKES, host())


def read(client: Redis) -> dict[str, Lag]:
    """What every machine said last, by its name.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return parse(client.hgetall(keys.LAKES))


def parse(stored: Mapping[Any, Any]) -> dict[str, Lag]:
    """The hash; what another release may have written otherwise is left out."""
    found = {}
    for name, document in sorted(stored.items())[:MAX_MACHINES]:
        with contextlib.suppress(ValueError, TypeError):
            lag = Lag(**json.loads(document))
            if all(type(value) in (int, float) for value in lag):
                found[text(name)] = lag
    return found


def figures(found: Mapping[str, Lag], now: float | None = None) -> dict[str, float]:
    """Metrics of the machines that are not gone."""
    moment = time.time() if now is None else now
    told: dict[str, float] = {}
    for name, each in found.items():
        if not each.gone(moment):
            waits_s = max(each.age_s, each.silent_s(moment))
            told[series("relay_analytics_waiting_seconds", host=name)] = float(waits_s)
            told[series("relay_analytics_waiting_bytes", host=name)] = float(each.size_bytes)
    return told
