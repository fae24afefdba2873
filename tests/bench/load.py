"""Load generator process: `python -m tests.bench.load`, controlled by JSON lines on stdin.

Each line is `{"call": name, "args": {...}}`, answered by one line `{"ok": ...}` or
`{"error": text}`. The calls are the public coroutines of `Generator`. The work per message
is in `flows.py` and `clients.py`: a Cython websocket client, one patched buffer per flow, no task
and no queue. The garbage collector is off while messages run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from time import perf_counter_ns
from typing import Any

import uvloop

from tests.bench import sbd_clients
from tests.bench import twins as bench_twins
from tests.bench.clients import BareClient, Client, sign_in, stay
from tests.bench.envelopes import Template, ping
from tests.bench.flows import BINARY, Flow, Lane, Ledger
from tests.bench.mux_clients import Hub, MuxClient
from tests.bench.rush import Rush
from tests.proto.sbd.pairs import Identity
from tests.support.sbd_crowd import Member

CONNECTS_AT_ONCE = 32
BULK_CHUNK = 50
"""Messages that one sender writes before the next one's turn, when queues are being filled."""
POLL_S = 0.001
RUSH_TIMEOUT_S = 60.0
LONGEST_COMMAND_BYTES = 8 * 1024 * 1024


class Generator:
    """The calls that the bench can make; see the module docstring for their form."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.clients: dict[int, Client] = {}
        self.bare: list[BareClient | Member] = []
        self.identities: dict[int, Identity] = {}  # of SBD clients
        self.senders: list[Client] = []  # of the flows, in their order
        self.tokens: dict[int, str] = {}
        self.streams: list[MuxClient] = []  # idle ones
        self.hub: Hub | None = None
        self.crowd = Rush()

    async def prepare(self, twins: list[int], protocol: str = "rmb") -> None:
        """Sign tokens, or make keys, in advance, so that no measured second is spent on it."""
        if protocol == "sbd":
            self.identities.update((twin, Identity(twin)) for twin in twins)
            return
        self.tokens.update((twin, bench_twins.token(twin)) for twin in twins)

    async def connect(self, url: str, twins: list[int], protocol: str = "rmb") -> None:
        """Sign in full clients."""
        if protocol != "sbd":
            await self.prepare([twin for twin in twins if twin not in self.tokens])
        for first in range(0, len(twins), CONNECTS_AT_ONCE):
            group = twins[first : first + CONNECTS_AT_ONCE]
            clients: list[Client]
            if protocol == "sbd":
                clients = await asyncio.gather(
                    *(sbd_clients.sign_in(self.ledger, twin, url) for twin in group)
                )
            elif protocol == "mux":
                hub = await self._hub(url)
                clients = await asyncio.gather(
                    *(hub.sign_in(self.ledger, twin, self.tokens[twin]) for twin in group)
                )
            else:
                clients = [Client(self.ledger, twin) for twin in group]
                await asyncio.gather(
                    *(sign_in(client, url, self.tokens[client.twin]) for client in clients)
                )
            self.clients.update((client.twin, client) for client in clients)

    async def stay(
        self,
        url: str,
        twins: list[int],
        slow: bool = False,
        protocol: str = "rmb",
        signs: bool = True,
    ) -> dict[str, float]:
        """Open bare connections of prepared twins, `CONNECTS_AT_ONCE` at a time.

        Args:
            url: URL of the server.
            twins: twins of the connections.
            slow: whether the clients stop reading.
            protocol: rmb, sbd, or mux.
            signs: whether clients of SBD sign in.
        """
        waiting = iter(twins)
        if protocol == "mux":
            hub = await self._hub(url)
        began = perf_counter_ns()

        async def one_after_another() -> None:
            for twin in waiting:
                if protocol == "mux":
                    self.streams.append(await hub.sign_in(self.ledger, twin, self.tokens[twin]))
                elif protocol == "sbd":
                    identity = self.identities[twin]
                    self.bare.append(await sbd_clients.stay(url, identity, twin, signs))
                else:
                    self.bare.append(await stay(url, twin, self.tokens[twin], slow))

        await asyncio.gather(*(one_after_another() for _ in range(CONNECTS_AT_ONCE)))
        return {"began_ns": began, "ended_ns": perf_counter_ns()}

    async def rush(
        self,
        url: str,
        twins: list[int],
        at_once: int = 0,
        mail: dict[str, int] | None = None,
        timeout_s: float = RUSH_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Sign in prepared twins on bare sockets; see `Rush.connect`."""
        gc.collect()
        gc.disable()
        try:
            return self.crowd.connect(url, self.tokens, twins, at_once, mail or {}, timeout_s)
        finally:
            gc.enable()

    async def rush_closed(self, timeout_s: float = RUSH_TIMEOUT_S) -> int:
        """Wait until the relay has closed all of the rush; return the number still open."""
        return self.crowd.until_closed(timeout_s)

    async def rush_ends(self) -> None:
        """Drop all connections of the rush."""
        self.crowd.end()

    async def _hub(self, url: str) -> Hub:
        """Return the connection to a relay that carries the streams of all clients."""
        if self.hub is None or self.hub.url != url or self.hub.ended:
            self.hub = await Hub.connect(url)
        return self.hub

    async def still_there(self) -> int:
        """Return the number of bare connections and streams that are still open."""
        return sum(not client.ended for client in (*self.bare, *self.streams))

    async def leave(self, twins: list[int]) -> None:
        """End the measurement: close full clients, and return when their connections have ended."""
        self.ledger.end()
        leaving = [self.clients.pop(twin) for twin in twins]
        for client in leaving:
            client.close()
        for client in leaving:
            await client.gone()

    async def flows(
        self,
        pairs: list[tuple[int, int]],
        payload_size_bytes: int,
        lanes: list[str] | None = None,
        signed: bool = False,
        signed_ahead: int = 0,
        protocol: str = "rmb",
    ) -> None:
        """Create flows between (sender, receiver) twins; flows of an earlier call are forgotten.

        Args:
            pairs: sender and receiver of each flow; the senders are signed in.
            payload_size_bytes: payload size of every message.
            lanes: name of the lane of each flow, all "all" by default.
            signed: whether the messages have valid signatures.
            signed_ahead: messages of each flow signed before this returns; later ones when sent.
            protocol: protocol of the clients: rmb, sbd, or mux.
        """
        ledger = self.ledger
        ledger.reset(payload_size_bytes)
        now = int(time.time())
        for index, (source, destination) in enumerate(pairs):
            transport = self.clients[source].transport
            assert transport is not None
            head = (ledger.measurement, index)
            template: Template | sbd_clients.Template
            if protocol == "sbd":
                template = sbd_clients.Template(*head, destination, payload_size_bytes)
            else:
                template = Template(
                    *(*head, source, destination, payload_size_bytes, now),
                    key=bench_twins.signing_key(source) if signed else None,
                    signed_ahead=signed_ahead,
                )
            lane = ledger.lanes.setdefault(lanes[index] if lanes else "all", Lane())
            ledger.flows.append(Flow(ledger, lane, template, transport))
        self.senders = [self.clients[source] for source, _ in pairs]

    async def start(self, window: int) -> None:
        """Send `window` messages of every flow, and keep that many in flight."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self.ledger.running = True
        for flow in self.ledger.flows:
            for _ in range(window):
                flow.send(perf_counter_ns())

    async def mark(self) -> dict[str, Any]:
        """Return the figures since the last mark."""
        taken = {name: lane.take() for name, lane in self.ledger.lanes.items()}
        at_ns = perf_counter_ns()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "at_ns": at_ns,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "messages": sum(len(latencies) for latencies in taken.values()),
            "lanes": {name: list(Counter(latencies).items()) for name, latencies in taken.items()},
        }

    async def stop(self, timeout_s: float) -> dict[str, Any]:
        """Send no more, wait for the messages in flight, and return the account."""
        self.ledger.running = False
        return await self.settle(timeout_s)

    async def settle(self, timeout_s: float) -> dict[str, Any]:
        """Wait until everything sent has arrived or the time is over; return the account."""
        deadline = time.monotonic() + timeout_s
        while self.ledger.outstanding and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        ended = perf_counter_ns()
        gc.enable()
        return {
            "account": self.ledger.account(),
            "ended_ns": ended,
            "notices": dict(self.ledger.notices),
            "closes": dict(self.ledger.closes),
        }

    async def drain(self, url: str, twins: list[int], timeout_s: float) -> dict[str, Any]:
        """Sign in receivers and wait until they have read everything in their queues."""
        began = perf_counter_ns()
        await self.connect(url, twins)
        return {"began_ns": began, **await self.settle(timeout_s)}

    async def next_arrival(self, timeout_s: float) -> int | None:
        """Return when the next message arrives (nanoseconds of the monotonic clock), or None."""
        before = self.ledger.received
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.ledger.received != before:
                return perf_counter_ns()
            await asyncio.sleep(POLL_S)
        return None

    async def bulk(self, messages: int) -> dict[str, float]:
        """Send this many messages of every flow at once, then wait until all of them are stored."""
        gc.disable()
        began = perf_counter_ns()
        for done in range(0, messages, BULK_CHUNK):
            for flow, client in zip(self.ledger.flows, self.senders, strict=True):
                await client.writable.wait()
                for _ in range(min(BULK_CHUNK, messages - done)):
                    flow.send(perf_counter_ns())
            await asyncio.sleep(0)
        await self.barrier()
        gc.enable()
        return {"began_ns": began, "ended_ns": perf_counter_ns()}

    async def barrier(self) -> None:
        """Wait until everything sent so far is decided and, where it must be, stored."""
        pongs = []
        for client in set(self.senders):
            assert client.transport is not None
            uid = f"barrier-{client.twin}-{perf_counter_ns()}"
            pong = client.pongs[uid] = asyncio.get_running_loop().create_future()
            pongs.append(pong)
            client.transport.send(BINARY, ping(client.twin, uid, int(time.time())))
        await asyncio.gather(*pongs)

    async def take_over(self, url: str, twin: int, timeout_s: float) -> dict[str, Any]:
        """Sign in a twin a second time while flow 0 sends to it, one message at a time.

        The answer holds the microseconds, from the start of connecting, until the upgrade, until
        the first message on the new connection, and until the old connection has ended.

        Raises:
            TimeoutError: These have not all happened within the time limit.
        """
        flow = self.ledger.flows[0]
        old, new = self.clients[twin], Client(self.ledger, twin)
        old.expected_close = True
        loop = asyncio.get_running_loop()
        new.arrival = loop.create_future()
        began = perf_counter_ns()
        async with asyncio.timeout(timeout_s):
            await sign_in(new, url, self.tokens[twin])
            upgraded = perf_counter_ns()
            while not new.arrival.done():
                old.arrival = loop.create_future()
                flow.send(perf_counter_ns())
                await asyncio.wait({old.arrival, new.arrival}, return_when=asyncio.FIRST_COMPLETED)
            assert old.transport is not None
            await old.transport.wait_disconnected()
        self.clients[twin] = new
        first = new.arrival.result()
        new.arrival = None
        return {
            "upgraded_us": (upgraded - began) // 1000,
            "first_message_us": (first - began) // 1000,
            "old_closed_us": (perf_counter_ns() - began) // 1000,
        }


async def commands() -> AsyncIterator[dict[str, Any]]:
    """Yield the parsed lines of stdin, until it ends."""
    reader = asyncio.StreamReader(limit=LONGEST_COMMAND_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def serve(generator: object) -> None:
    """Answer calls of a generator's coroutines, one after another, until stdin ends."""
    async for command in commands():
        try:
            answer = {"ok": await getattr(generator, command["call"])(**command["args"])}
        except Exception as error:
            # The bench shows the error and ends: the caller knows what the call was for.
            answer = {"error": f"{command['call']}: {type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(Generator()))
