"""Moving what waits for one session to another session of the same twin.

Batch by batch, each in one script that adds and removes: whoever is killed, and whichever answer is
lost, a message is in one of the two queues and never in both. What arrived while it was moved stays
for the next time.

The order is kept: what was moved comes behind what the other queue had. So is the deadline; only
the time for which mail is kept at most begins anew, because a queue is ordered by arrival. What is
too old already stays where it is and ends there as it would have, and so does what is no envelope.
A connected target is woken by the script, as by any writer.
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
"""A move that takes longer stops, and the next one goes on where it ended: somebody waits."""
_MAX_DEADLINE: Final = 1 << 53
"""Clients choose any; above it the numbers of a script are not exact, and it is the end of days."""


@dataclass(frozen=True, slots=True)
class Moved:
    """How a move went.

    Attributes:
        moved: messages that are in the other queue now.
        expired: those too old to be delivered anywhere, which stayed.
        malformed: entries that are no envelope, which stayed.
        left: all that is still in the queue, those included.
        stopped: why not all was looked at: `full` (the other queue), `connected` (the session came
            back), `guest` (the mail goes to another relay), `time`, `redis`; empty: all was.
    """

    moved: int
    expired: int
    malformed: int
    left: int
    stopped: str


def move(client: Redis, source: str, target: str, policy: QueuePolicy) -> Moved:
    """Move what waits for one session key to another, as `steps` does, to its end."""
    *_, (moved, _over) = steps(client, source, target, policy)
    return moved


def steps(
    client: Redis, source: str, target: str, policy: QueuePolicy
) -> Iterator[tuple[Moved, bool]]:
    """Move what waits for one session key to another, a page of it at each step.

    Args:
        client: replies as bytes.
        source, target: of the same twin, and different.
        policy: the bounds of the other queue.

    Yields:
        All that was moved until then, and whether that was the last step.

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
