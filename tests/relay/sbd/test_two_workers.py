"""Two workers with keys that come, move and leave, compared with a simple model, on a real Redis.

Always, a packet is delivered under the key that sent it, to the key it was sent to, in order and
once. When the system is idle, the connection that proved a key last holds it and is reachable from
every worker, and every packet was delivered or counted as lost.
"""

from __future__ import annotations

import asyncio
import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.proto.sbd.pairs import Identity
from tests.relay.sbd.workers import Client, Worker, heard, until
from tests.support.redis_servers import RedisServer

IDENTITIES = [Identity(number) for number in range(4)]
LABEL = struct.Struct(">HHHI")  # a constant, sender's connection, destination, number
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["connect", "connect", "send", "send", "send", "leave", "go_on", "cut_off", "settle"]
        ),
        st.integers(0, 30),
        st.integers(0, 3),
        st.booleans(),
    ),
    min_size=5,
    max_size=40,
)
"""Steps of a run: the action, the number of a client or worker, a key, and a flag.

All are drawn in advance, so that they do not depend on how long connections take."""


class TwoWorkers:
    """The rules of the model; `settle` checks what is true only when the system is idle."""

    def __init__(self, redis: RedisServer) -> None:
        self.redis = redis
        redis.run("FLUSHALL")
        self.runner = asyncio.Runner()
        self.clients: list[Client] = []  # all clients of the run
        self.left: set[Client] = set()
        self.proven: dict[int, set[Client]] = {}  # one of them holds the key
        self.settled: dict[int, bool] = {}
        self.sent: dict[tuple[int, int], int] = {}  # (connection, destination) -> last number
        self.got: dict[tuple[int, int], int] = {}  # (sending, receiving connection) -> last number
        self.cut = False
        self.workers = self.runner.run(self._start())

    async def _start(self) -> list[Worker]:
        workers = [Worker("ab"[number], self.redis) for number in range(2)]
        for worker in workers:
            await worker.start()
        return workers

    # --- rules ------------------------------------------------------------------------------------

    def step(self, rule: str, number: int, key: int, flag: bool) -> None:
        found = self._open()
        client = found[number % len(found)] if found else None
        match rule:
            case "connect":
                self.runner.run(self._connect(number % 2, key, flag))
            case "send" if client is not None:
                self.runner.run(self._send(client, key, 1 + number % 5))
            case "leave" if client is not None:
                self.runner.run(self._leave(client))
            case "go_on":
                self.runner.run(asyncio.sleep(number / 20_000))
                self._look()
            case "cut_off":
                self.runner.run(self._cut_off(number % 2, flag))
            case "settle":
                self.runner.run(self._settle())

    def end(self) -> None:
        try:
            self.runner.run(self._settle())
        finally:
            self.runner.run(self._stop())
            self.runner.close()

    # --- what they do -----------------------------------------------------------------------------

    def _open(self) -> list[Client]:
        return [client for client in self.clients if client.line.open]

    def _number(self, client: Client) -> int:
        return self.clients.index(client)

    async def _connect(self, worker: int, key: int, waits: bool) -> None:
        client = self.workers[worker].connect(IDENTITIES[key])
        self.clients.append(client)
        if self.settled.get(key, True):
            self.proven[key] = set()
        self.proven[key].add(client)
        self.settled[key] = waits
        if waits:
            await until(lambda: client.ready or not client.line.open)

    async def _send(self, client: Client, to: int, count: int) -> None:
        source = self._number(client)
        last = self.sent.get((source, to), 0)
        payloads = [LABEL.pack(7, source, to, last + 1 + step) for step in range(count)]
        self.sent[source, to] = last + count
        client.send(IDENTITIES[to].key, *payloads)
        self._look()

    async def _cut_off(self, worker: int, news: bool) -> None:
        """Cut a connection to Redis; packets under way are lost, and may not be counted."""
        self.cut = True
        crossing = self.workers[worker].crossing
        (crossing._hub.pipe if news else crossing._pipe).drop()

    async def _leave(self, client: Client) -> None:
        self.left.add(client)
        client.leave()

    def _look(self) -> None:
        """Check the packets that have arrived."""
        for receiver, client in enumerate(self.clients):
            for packet in client.received():
                _, source, to, number = LABEL.unpack(packet.payload)
                assert packet.key == self.clients[source].key, "another source"
                assert IDENTITIES[to].key == client.key, "another destination"
                assert number > self.got.get((source, receiver), 0), "out of order, or twice"
                self.got[source, receiver] = number

    async def _quiet(self) -> None:
        await until(lambda: all(worker.crossing.usable for worker in self.workers))
        hubs = [worker.crossing._hub for worker in self.workers]
        await until(lambda: all(hub.pipe.usable and hub._again is None for hub in hubs))
        await heard(*self.workers)
        await heard(*self.workers)
        self._look()

    def _balanced(self) -> bool:
        counts = [worker.switch.counts for worker in self.workers]
        ends = sum(each.delivered + each.lost.total() for each in counts)
        return ends == sum(each.received for each in counts)

    async def _settle(self) -> None:
        await self._quiet()
        for key, identity in enumerate(IDENTITIES):
            found = [client for client in self._open() if client.key == identity.key]
            assert len(found) <= 1, "two connections of one key"
            proven = self.proven.get(key, set())
            if len(proven) == 1 and not proven & self.left:
                assert found == list(proven), "not the one that proved it last"
            if found:
                self.proven[key], self.settled[key] = set(found), True
                await self._reach(found[0], key)
        if not self.cut:
            await until(self._balanced)

    async def _reach(self, target: Client, key: int) -> None:
        assert target.ready
        for client in self._open():
            await self._send(client, key, 1)
        await self._quiet()
        for client in self._open():
            source = self._number(client)
            last = self.got.get((source, self._number(target)))
            assert last == self.sent[source, key], "not reachable"

    async def _stop(self) -> None:
        for worker in self.workers:
            await worker.stop()


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(STEPS)
def test_any_moves(valkey: RedisServer, steps: list[tuple[str, int, int, bool]]) -> None:
    two = TwoWorkers(valkey)
    try:
        for step in steps:
            two.step(*step)
    finally:
        two.end()
