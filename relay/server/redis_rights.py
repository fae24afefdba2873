"""Permissions of a relay in Redis, checked before it starts to use the server.

A Redis user may be restricted to some commands, keys and channels (`ACL SETUSER`). A missing
permission shows only when it is first needed, which may be days after the start: `CLIENT KILL`
after the first broken connection. So each one is tried in a transaction that is then discarded:
Redis checks permissions when a command is queued, and nothing is executed. (`ACL DRYRUN` would need
permission to manage users, and Redis 7.)
"""

from __future__ import annotations

from typing import Any, Final

from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from relay.queues import keys

PROBE: Final = "relay:probe"

FAMILIES: Final = (
    *("stream:0", PROBE, "limits:0", "federation:0", keys.REFERENCE_OUTBOX),
    keys.SBD_KEYS,  # even without SBD: a dead worker of another host may have served it
)
"""One key of each kind; the relay must be able to read and write it."""
CHANNELS: Final = ("wake:0", "relay:0", "sbd:0")
"""One channel of each kind; the relay must be able to publish and subscribe to it."""

COMMANDS: Final[tuple[tuple[str | int, ...], ...]] = (
    ("CLIENT", "ID"), ("CLIENT", "KILL", "ID", 0), ("CLIENT", "UNBLOCK", 0),
    ("INFO", "server"), ("MEMORY", "USAGE", PROBE), ("SCAN", 0), ("TIME",),
    ("EVAL", "return 1", 0), ("PUBSUB", "NUMSUB", CHANNELS[0]),
    ("DEL", PROBE), ("UNLINK", PROBE), ("EXISTS", PROBE), ("TYPE", PROBE),
    ("EXPIRE", PROBE, 1), ("PEXPIRE", PROBE, 1), ("TTL", PROBE),
    ("GET", PROBE), ("MGET", PROBE), ("SET", PROBE, ""), ("INCR", PROBE), ("INCRBY", PROBE, 1),
    ("HDEL", PROBE, ""), ("HEXISTS", PROBE, ""), ("HGET", PROBE, ""), ("HGETALL", PROBE),
    ("HINCRBY", PROBE, "", 1), ("HLEN", PROBE), ("HMGET", PROBE, ""), ("HSCAN", PROBE, 0),
    ("HSET", PROBE, "", ""),
    ("SADD", PROBE, ""), ("SCARD", PROBE), ("SISMEMBER", PROBE, ""), ("SMEMBERS", PROBE),
    ("SMISMEMBER", PROBE, ""), ("SPOP", PROBE), ("SREM", PROBE, ""),
    ("ZADD", PROBE, 0, ""), ("ZCARD", PROBE), ("ZINCRBY", PROBE, 1, ""), ("ZPOPMIN", PROBE),
    ("ZRANGEBYSCORE", PROBE, 0, 0), ("ZREM", PROBE, ""), ("ZREMRANGEBYRANK", PROBE, 0, 0),
    ("ZREMRANGEBYSCORE", PROBE, 0, 0), ("ZREVRANGEBYSCORE", PROBE, 0, 0), ("ZSCORE", PROBE, ""),
    ("BZPOPMIN", PROBE, 1),
    ("LPUSH", PROBE, ""), ("RPUSH", PROBE, ""), ("BRPOP", PROBE, 1), ("RPOP", PROBE),
    ("LLEN", PROBE), ("LRANGE", PROBE, 0, 0), ("LTRIM", PROBE, 0, 0), ("LINDEX", PROBE, 0),
    ("XADD", PROBE, "*", "", ""), ("XDEL", PROBE, "0-1"), ("XLEN", PROBE),
    ("XRANGE", PROBE, "-", "+"), ("XREAD", "STREAMS", PROBE, "0"), ("XREVRANGE", PROBE, "+", "-"),
    ("XTRIM", PROBE, "MAXLEN", 0),
)  # fmt: skip
"""Commands of the relay, of Channels and of Celery, each on a key that is allowed."""


def missing(client: Redis) -> list[str]:
    """Return, in words, what the client's Redis user may not do; empty if nothing is missing.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    wanted: list[tuple[str, tuple[str | int, ...]]] = []
    for key in FAMILIES:
        wanted.append((f"read the key {key}", ("GET", key)))
        wanted.append((f"write the key {key}", ("DEL", key)))
    for channel in CHANNELS:
        wanted.append((f"publish to the channel {channel}", ("PUBLISH", channel, "")))
        wanted.append((f"listen to the channel {channel}", ("SUBSCRIBE", channel)))
    for command in COMMANDS:
        words = command[: 2 if command[0] in ("CLIENT", "MEMORY") else 1]
        wanted.append((" ".join(map(str, words)), command))
    pool = client.connection_pool
    connection: Any = pool.get_connection()
    found: list[str] = []
    try:
        connection.send_command("MULTI")
        try:
            connection.read_response()
        except NoPermissionError:
            return ["MULTI"]
        connection.send_packed_command(connection.pack_commands([each for _, each in wanted]))
        for right, _ in wanted:
            try:
                connection.read_response()
            except NoPermissionError:
                found.append(right)
            except ResponseError:
                pass  # renamed or unknown: reported where it is used
    finally:
        connection.disconnect()  # which discards the transaction
        pool.release(connection)
    return found
