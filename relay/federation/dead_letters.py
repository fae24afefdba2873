"""Dead letters: messages that failed for good, kept for a day and sent again on demand.

A drainer that gives a message up moves it here, in the script that settles its outbox entry, with
the reason and the failed attempts. At most `MAX_LETTERS` are kept. `relay.federation.letters` lists
them for operators.

A dead letter has the fields of the outbox (`relay.federation.outbox`) and these: `why`, the reason,
one of `proto.rmb.reasons`; `shard` and `entry`, its place in the outbox; and `tries`, the failed
attempts as a JSON list. A letter that was sent again also has `n`: how often it went through the
outbox.
"""

from __future__ import annotations

from typing import Final

from redis import Redis
from redis.exceptions import ResponseError

from relay.federation import scripts
from relay.ops.redis_client import text
from relay.queues import keys
from relay.queues.held import MESSAGE_BITS

MAX_LETTERS: Final = 10_000
KEPT_S: Final = 86_400


def requeue(client: Redis, entry: str) -> str | None:
    """Send a dead letter again, as the newest message of its shard.

    It is counted as held again even if its account is full, because an operator asked for it.
    The beat starts a drainer for its shard if no drainer runs.

    Args:
        client: connection whose replies are bytes.
        entry: id of the letter in the stream of dead letters.

    Returns:
        Its new id in the outbox; None if there is no such letter.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    streams = [keys.outbox(shard) for shard in range(keys.OUTBOX_SHARDS)]
    try:
        reply = client.eval(
            scripts.source("requeue"),
            1 + len(streams),
            keys.DEAD_LETTERS,
            *streams,
            entry,
            keys.held(""),
            MESSAGE_BITS,
        )
    except ResponseError as error:
        if "Invalid stream ID" in str(error):
            return None
        raise
    return text(reply) if reply else None


def delete(client: Redis, entry: str) -> bool:
    """Remove a dead letter, and return whether it existed.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return bool(client.xdel(keys.DEAD_LETTERS, entry))


def expire(client: Redis, now: float) -> int:
    """Remove dead letters older than a day, and return their number.

    Args:
        now: unix seconds.
    """
    return int(client.xtrim(keys.DEAD_LETTERS, minid=f"{int((now - KEPT_S) * 1000)}"))
