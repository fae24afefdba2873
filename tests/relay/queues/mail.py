"""Messages in queues, stored as other parts of the relay store them."""

from __future__ import annotations

from redis import Redis

from proto.rmb import types_pb2 as pb
from tests.support.envelopes import SessionKey, request
from tests.support.redis_servers import RedisServer

TO: SessionKey = (7, None)


def put(
    server: RedisServer, key: str, envelope: pb.Envelope | bytes, entry: str = "*", **fields: str
) -> str:
    """Add one entry to a queue, and return its id."""
    payload = envelope if isinstance(envelope, bytes) else envelope.SerializeToString()
    rest = [part for pair in fields.items() for part in pair]
    return server.run("XADD", f"stream:{key}", entry, "_", payload, *rest).decode()


def fill(server: RedisServer, key: str, count: int, prefix: str = "m") -> list[str]:
    """Add requests of twin 3 with the uids `m0`, `m1`, ..., and return the uids."""
    uids = [f"{prefix}{number}" for number in range(count)]
    with Redis(port=server.port) as client, client.pipeline(transaction=False) as pipe:
        for uid in uids:
            envelope = request((3, "a"), TO, b"payload", uid=uid)
            pipe.xadd(f"stream:{key}", {"_": envelope.SerializeToString()})
        pipe.execute()
    return uids


def uids(server: RedisServer, key: str) -> list[str]:
    """Return the uids of the messages in a queue, in order."""
    entries = server.run("XRANGE", f"stream:{key}", "-", "+")
    return [pb.Envelope.FromString(fields[b"_"]).uid for _, fields in entries]
