"""A sender on the event loop of the test, with a real Valkey and twins from a dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
import redis

from proto.rmb.types_pb2 import Envelope
from relay.analytics.drainer_events import DrainerEvents
from relay.federation.outbox import account_of, source_of
from relay.federation.resolver import PublicResolver
from relay.federation.sender import Sender, SenderOptions
from relay.queues import keys
from relay.queues.held import pack
from relay.twins.source import TwinRecord
from tests.relay.twins.sources import ScriptedSource
from tests.support.envelopes import request
from tests.support.redis_servers import RedisServer

OWN_DOMAIN = "here.example"
ASKER = (1001, "s")


class Outgoing:
    """The outgoing path of one relay.

    Attributes:
        client: Client of the relay's Redis.
        twins: Source of twins.
        sender: Sender of the relay; exists after a call of `start`.
    """

    def __init__(self, server: RedisServer, **options: Any) -> None:
        self.server = server
        self.client: redis.Redis = server.client()
        self.twins = ScriptedSource()
        self.options = SenderOptions(
            server.unix_url,
            (OWN_DOMAIN, "also-here.example"),
            **{"scheme": "http", "allow_private": True, "unknown_s": 0.05, **options},
        )
        self.leave = False
        self.drains: list[asyncio.Task[bool]] = []

    def twin(self, number: int, *relays: str) -> int:
        """Add a twin to the source, and return its number."""
        self.twins.twins[number] = TwinRecord(number, bytes(32), None, relays, 1)
        return number

    async def start(
        self,
        *shards: int,
        events: DrainerEvents | None = None,
        resolver: PublicResolver | None = None,
    ) -> None:
        """Start to drain the given shards, or all shards if none are given."""
        self.sender = Sender(self.options, self.twins, lambda: self.leave, resolver, events)
        await self.sender.start()
        for shard in shards or range(keys.OUTBOX_SHARDS):
            self.drains.append(asyncio.create_task(self.sender.drain(shard)))

    async def stop(self) -> list[bool]:
        """Stop the drainers cleanly; return for each whether messages are left."""
        self.leave = True
        drains, self.drains = self.drains, []
        more = await asyncio.gather(*drains)
        await self.sender.close()
        self.leave = False
        return more

    def put(
        self,
        twin: int,
        uid: str | None = None,
        *,
        origin: str = "1001:s",
        payload: bytes | None = None,
        connection: str | None = None,
        **more: Any,
    ) -> str:
        """Put one message into the outbox, as a worker does, and return its entry id."""
        envelope = request(ASKER, (twin, connection), uid=uid, **more)
        raw = envelope.SerializeToString() if payload is None else payload
        record = self.twins.twins.get(twin)
        account = account_of(record.relays if record else ())
        pipe = self.client.pipeline(transaction=True)
        pipe.xadd(keys.outbox(twin), {"_": raw, "from": origin, "for": account})
        for field in ("total", source_of(origin)):
            pipe.hincrby(keys.held(account), field, pack(1, len(raw)))
        entry: bytes = pipe.execute()[0]
        return entry.decode()

    def put_many(self, twin: int, uids: Iterable[str], **more: Any) -> None:
        """Put many messages of one sender into the outbox, without a transaction for each."""
        account = account_of(self.twins.twins[twin].relays)
        pipe = self.client.pipeline(transaction=False)
        for uid in uids:
            raw = request(ASKER, (twin, None), uid=uid, **more).SerializeToString()
            pipe.xadd(keys.outbox(twin), {"_": raw, "from": "1001:s", "for": account})
            for field in ("total", "1001"):
                pipe.hincrby(keys.held(account), field, pack(1, len(raw)))
        pipe.execute()

    def empty(self) -> bool:
        """Return whether the outbox has no entries and its counts are gone."""
        left = sum(self.client.xlen(keys.outbox(shard)) for shard in range(keys.OUTBOX_SHARDS))
        return not left and not self.client.keys(keys.held("*"))

    def dead(self) -> list[dict[str, bytes]]:
        """Return the dead letters."""
        return [
            {name.decode(): value for name, value in fields.items()}
            for _, fields in self.client.xrange(keys.DEAD_LETTERS)
        ]

    def notices(self, session: str = "1001:s") -> list[Envelope]:
        """Return the notices in the queue of a session."""
        found = self.client.xrange(keys.stream(session))
        return [Envelope.FromString(fields[b"_"]) for _, fields in found]

    def partner(self, domain: str) -> dict[str, str]:
        """Return the stored state of a partner relay."""
        found = self.client.hgetall(keys.partner(domain))
        return {name.decode(): value.decode() for name, value in found.items()}

    async def close(self) -> None:
        if self.drains:
            await self.stop()
        self.client.close()


Make = Callable[..., Outgoing]


@pytest.fixture
async def make(valkey: RedisServer) -> AsyncIterator[Make]:
    """Return a function that creates outgoing paths over one Redis."""
    made: list[Outgoing] = []

    def new(**options: Any) -> Outgoing:
        made.append(Outgoing(options.pop("server", valkey), **options))
        return made[-1]

    yield new
    for each in made:
        await each.close()


@pytest.fixture
async def out(make: Make) -> Outgoing:
    """Return one outgoing path that is not started yet."""
    return make()
