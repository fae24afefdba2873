"""Moving the messages of one session's queue to another session of the same twin.

They are moved batch by batch, each in one script that adds and removes: even if a process is killed
or an answer is lost, a message is in one of the two queues and never in both. Messages that arrive
during the move stay for the next one.

The order is kept: moved messages follow those already in the other queue. Deadlines are kept too;
only the retention starts again, because a queue is ordered by arrival. Messages that are already
too old stay where they are and expire there, and so do entries that are not envelopes. The script
wakes a connected target, as any writer does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from relay.ops.redis_client import text
from relay.queues import charging, headers, keys, scripts
from relay.queues.batch import QueuePolicy
from relay.queues.charging import ENTRY_BYTES
from relay.queues.headers import Header

MOVE_S: Final = 5.0
"""Seconds after which a move stops, because a caller waits; the next one continues from there."""
_MAX_DEADLINE: Final = 1 << 53
"""Highest deadline passed to the script. Clients choose any; above this, numbers in Lua are not
exact, and such a deadline is never reached."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Result of a move.

    Attributes:
        moved: Number of messages that are now in the other queue.
        expired: Number of messages too old to be delivered anywhere, which stayed.
        malformed: Number of entries that are not envelopes, which stayed.
        left: Number of entries still in the queue, including those; -1 if unknown.
        stopped: Why the move stopped early: `full` (the other queue), `connected` (the session came
            back), `guest` (the queue is being forwarded to another relay), `time`, `redis`; empty:
            it did not.
    """

    moved: int
    expired: int
    malformed: int
    left: int
    stopped: str


def move(client: Redis, source: str, target: str, policy: QueuePolicy) -> Moved:
    """Move the messages of one session key to another, as `steps` does, to the end."""
    *_, (moved, _over) = steps(client, source, target, policy)
    return moved


def steps(
    client: Redis, source: str, target: str, policy: QueuePolicy
) -> Iterator[tuple[Moved, bool]]:
    """Move the messages of one session key to another, one page at each step.

    Args:
        client: Redis client that returns replies as bytes.
        source, target: Two different session keys of the same twin.
        policy: Bounds of the other queue.

    Yields:
        What was moved so far, and whether that was the last step.

    Raises:
        redis.exceptions.RedisError: Redis does not answer at the first step, and nothing was moved.
    """
    until = time.monotonic() + MOVE_S
    moved = expired = malformed = 0
    after, stopped, going_on = "", "", False
    try:
        newest: Any = client.xrevrange(keys.stream(source), count=1)
        last = text(newest[0][0]) if newest else ""
        while last and not stopped:
            page = headers.read(client, source, after=after, up_to=last)
            if not page:
                break
            after = page[-1].entry
            chosen = [each for each in page if _is_movable(each, policy.retention_s)]
            unreadable = sum(bool(each.problem) for each in page)
            malformed += unreadable
            expired += len(page) - unreadable - len(chosen)
            if _size_bytes(client, target) >= policy.max_bytes:
                stopped = "full"
            elif chosen:
                stopped, count, old = _run(client, source, target, policy, chosen)
                moved, expired = moved + count, expired + old
            if time.monotonic() >= until and not stopped:
                stopped = "time"
            if after != last and not stopped:
                left = int(client.xlen(keys.stream(source)))
                going_on = True
                yield Moved(moved, expired, malformed, left, ""), False
        left = int(client.xlen(keys.stream(source)))
    except RedisError:
        if not (moved or going_on):
            raise
        left, stopped = -1, "redis"
    yield Moved(moved, expired, malformed, left, stopped), True


def _is_movable(header: Header, retention_s: int) -> bool:
    return not (header.problem or header.expired or header.at < time.time() - retention_s)


def _size_bytes(client: Redis, key: str) -> int:
    return int(client.memory_usage(keys.stream(key), samples=5) or 0)


def _run(
    client: Redis, source: str, target: str, policy: QueuePolicy, chosen: Sequence[Header]
) -> tuple[str, int, int]:
    names: list[str | bytes] = [
        *(keys.stream(source), keys.stream(target), keys.SESSIONS, keys.GUESTS),
        *(keys.guest_lease(source), keys.guest_lease(target)),
    ]
    entries: list[str | int] = []
    for each in chosen:
        deadline = min(each.judged_deadline, _MAX_DEADLINE)
        entries += (each.entry, deadline, each.source_twin, each.size_bytes)
    reply: Any = client.eval(
        scripts.source("move"), len(names), *names,
        source, target, policy.max_messages, 2 * policy.retention_s, *entries,
    )  # fmt: skip
    stopped, moved, old, twins = reply
    life_s = 2 * policy.retention_s
    charged: list[str | int] = []
    for twin, messages, size_bytes in twins:
        charged += (target, 0, text(twin), messages, size_bytes + ENTRY_BYTES * messages)
    client.eval(*charging.script("charge", life_s, charged))
    client.eval(*charging.script("settle", life_s, [source]))
    return text(stopped), int(moved), int(old)
