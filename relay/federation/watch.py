"""The checks of federation made every few seconds.

They start drainers for shards without one, take over messages that the reference relay left, and
remove old dead letters and relays that no longer exist.
"""

from __future__ import annotations

import time

from relay.federation import dead_letters, take_over
from relay.federation.forgetting import Forgetting
from relay.ops import background
from relay.ops.redis_client import client
from relay.queues import keys

_forgetting = Forgetting()


def watch() -> None:
    """Run all checks once.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    for shard in idle_shards():
        background.start("federation.deliver", shard)
    dead_letters.expire(client(), time.time())
    _forgetting.look(client(), time.time())
    take_over.take_over(client())  # last: data of another program may cause any error


def idle_shards() -> list[int]:
    """Return the shards that have messages but no drainer."""
    shards = range(keys.OUTBOX_SHARDS)
    with client().pipeline(transaction=False) as pipe:
        for shard in shards:
            pipe.xlen(keys.outbox(shard))
            pipe.exists(keys.lease(shard))
        replies = pipe.execute()
    return [shard for shard in shards if replies[2 * shard] and not replies[2 * shard + 1]]
