"""Client of calls over the lattice or raw nats-py; with `serve KIND URL`, their server.

Kinds: `ours` (caller and provider), `raw` (request and reply) and `actor` (a server only).
"""

from __future__ import annotations

import sys

import nats
import uvloop
from nats.aio.msg import Msg

from lattice.actor import LatticeActor
from lattice.caller import LatticeCaller
from lattice.connection import LatticeConnection
from lattice.options import LatticeOptions
from lattice.provider import LatticeProvider
from lattice.serving import Call
from proto.lattice.entity import Entity
from proto.lattice.messages import LinkDefinition
from proto.lattice.nkeys import KeyKind, KeyPair
from tests.bench import load
from tests.bench.streams.program import Program

PAYLOAD = bytes(256)
OPERATION = "Echo.Echo"
TIMEOUT_S = 10.0
CLUSTER = KeyPair(KeyKind.CLUSTER, bytes(range(32)))
ACTOR = KeyPair(KeyKind.ACTOR, bytes(range(32))).public
PROVIDER_KEY = KeyPair(KeyKind.PROVIDER, bytes(range(32)))
PROVIDER = PROVIDER_KEY.public
TARGET = Entity.provider(PROVIDER, "default", "bench:echo")
LINK = LinkDefinition(ACTOR, PROVIDER, "default", "bench:echo")


def _connection(url: str) -> LatticeConnection:
    return LatticeConnection(LatticeOptions(servers=(url,), cluster_seed=CLUSTER.seed))


async def serve(kind: str, url: str) -> None:
    """Serve until stdin ends; print a line when ready."""
    if kind == "raw":
        client = await nats.connect(url)

        async def answer(message: Msg) -> None:
            await message.respond(message.data)

        await client.subscribe("bench", cb=answer)
        await client.flush()
    else:
        connection = _connection(url)
        await connection.open()
        served: LatticeActor | LatticeProvider = (
            LatticeActor(connection, ACTOR)
            if kind == "actor"
            else LatticeProvider(connection, PROVIDER, "bench:echo", links=(LINK,))
        )

        @served.operation(OPERATION)
        async def echo(call: Call) -> bytes:
            return call.payload

        await served.start()
    print("ready", flush=True)
    async for _ in load.commands():
        pass


class Caller(Program):
    """Client of either kind."""

    async def open(self, kind: str, url: str) -> None:
        """Connect."""
        self.kinds["calls"] = self.raw if kind == "raw" else self.ours
        if kind == "raw":
            self._client = await nats.connect(url)
        else:
            connection = _connection(url)
            await connection.open()
            self._caller = LatticeCaller(connection, ACTOR)

    async def raw(self) -> None:
        while self.is_running:
            await self._client.request("bench", PAYLOAD, timeout=TIMEOUT_S)
            self.count += 1

    async def ours(self) -> None:
        while self.is_running:
            await self._caller.call(TARGET, OPERATION, PAYLOAD, TIMEOUT_S)
            self.count += 1


if __name__ == "__main__":
    is_server = sys.argv[1:2] == ["serve"]
    uvloop.run(serve(*sys.argv[2:]) if is_server else load.serve(Caller()))
