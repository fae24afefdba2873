"""Functions that write to Redis what workers and drainers store about partner relays."""

from __future__ import annotations

import json
from typing import Any

from proto.rmb import types_pb2 as pb
from relay.federation import outbox
from relay.queues import keys
from relay.queues.held import pack
from tests.support import envelopes
from tests.support.redis_servers import RedisServer

PARTNER = "b.example"


def add_partner(server: RedisServer, domain: str = PARTNER, **fields: Any) -> None:
    """Add a partner relay and its state."""
    server.run("SADD", keys.PARTNERS, domain)
    for name, value in fields.items():
        server.run("HSET", keys.partner(domain), name, str(value))


def add_pending(server: RedisServer, envelope: pb.Envelope, account: str = PARTNER) -> str:
    """Add a message to the outbox, count it, and return its entry id."""
    payload = envelope.SerializeToString()
    source = envelope.source.twin
    packed = pack(1, len(payload))
    for field in (outbox.TOTAL, source):
        server.run("HINCRBY", keys.held(account), field, packed)
    fields = (outbox.ENVELOPE, payload, outbox.ORIGIN, source, outbox.ACCOUNT, account)
    entry: bytes = server.run("XADD", keys.outbox(envelope.destination.twin), "*", *fields)
    return entry.decode()


def add_dead(
    server: RedisServer, envelope: pb.Envelope, why: str = "remote_4xx", **changes: Any
) -> str:
    """Add a dead letter, and return its entry id. `changes` are fields; None omits one."""
    tried = {"at": 1_795_218_450.5, "relay": PARTNER, "answer": "404", "ms": 12.5}
    fields = {
        outbox.ENVELOPE: envelope.SerializeToString(),
        outbox.ORIGIN: f"{envelope.source.twin}:phone",
        outbox.ACCOUNT: PARTNER,
        "why": why,
        "shard": envelope.destination.twin % keys.OUTBOX_SHARDS,
        "entry": "1-1",
        "tries": json.dumps([tried]),
        **changes,
    }
    pairs = [part for pair in fields.items() if pair[1] is not None for part in pair]
    entry: bytes = server.run("XADD", keys.DEAD_LETTERS, "*", *pairs)
    return entry.decode()


def message(source: int = 7, destination: int = 12, **fields: Any) -> pb.Envelope:
    """Return a request; `fields` are those of `envelopes.request`."""
    return envelopes.request((source, None), (destination, None), b"secret payload", **fields)
