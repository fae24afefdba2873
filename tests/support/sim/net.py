"""The links between simulated processes and SimRedis, and their faults.

Each direction of a link is a pipe that keeps order and adds a latency drawn from the seed; one
write may arrive in several pieces. A link can be

- *cut* now, or after exactly n more bytes in one direction: what is in flight is lost;
- *half-opened*: the client's side ends now, but the server keeps the connection, and later receives
  and executes the bytes that were in flight (the case that CLIENT KILL exists for);
- *stalled*: bytes wait, and neither side is notified.

A killed process' last bytes still arrive, as a kernel would deliver them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.support.sim.loop import SimLoop, Simulation
from tests.support.sim.redis import ServerConnection, SimRedis

SPLIT_CHANCE = 0.1
"""Probability that one write arrives in two pieces."""


class Pipe:
    """One direction of a link: bytes in order, each piece after a latency."""

    def __init__(self, link: Link, loop: SimLoop, deliver: Callable[[bytes], None]) -> None:
        self.link = link
        self.loop = loop  # of the receiving process: a frozen one gets its bytes when it thaws
        self.open = True
        self.cut_after: int | None = None  # bytes that may still arrive
        self.carried = 0  # bytes that arrived
        self.stalled_until = 0.0
        self._deliver = deliver
        self._flight: deque[tuple[float, bytes]] = deque()
        self._last_arrival = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        return sum(len(data) for _, data in self._flight)

    def send(self, data: bytes) -> None:
        if not self.open or not data:
            return
        network = self.link.network
        pieces = [data]
        if len(data) > 1 and network.simulation.rng.random() < SPLIT_CHANCE:
            middle = network.simulation.rng.randrange(1, len(data))
            pieces = [data[:middle], data[middle:]]
        for piece in pieces:
            arrival = network.simulation.now + network.latency()
            self._last_arrival = max(self._last_arrival, arrival)
            self._flight.append((self._last_arrival, piece))
        self._arm()

    def drop(self) -> None:
        """Lose what is in flight and carry nothing more."""
        self.open = False
        self._flight.clear()
        if self._timer is not None:
            self._timer.cancel()

    def release(self) -> None:
        """End a stall."""
        self.stalled_until = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arm()

    def flush(self) -> None:
        """Deliver everything in flight now, whatever stalls it."""
        self.stalled_until = 0.0
        while self._flight and self.open:
            self._arrive(self._flight.popleft()[1])

    def _arm(self) -> None:
        if self._timer is None and self._flight:
            when = max(self._flight[0][0], self.stalled_until)
            self._timer = self.loop.call_at(when, self._pump)

    def _pump(self) -> None:
        self._timer = None
        while self._flight and self.open:
            if max(self._flight[0][0], self.stalled_until) > self.loop.time():
                break
            self._arrive(self._flight.popleft()[1])
        if self.open:
            self._arm()

    def _arrive(self, data: bytes) -> None:
        if self.cut_after is not None:
            data = data[: self.cut_after]
            self.cut_after -= len(data)
        self.carried += len(data)
        if data:
            self._deliver(data)
        if self.cut_after == 0 and self.open:
            self.link.cut()


class LinkTransport(asyncio.Transport):
    """The client's end of a link, as asyncio code sees it."""

    def __init__(self, link: Link, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.link = link
        self.protocol = protocol
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closing:
            self.link.up.send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self.closing:
            self.link.close_from_client()

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def get_protocol(self) -> asyncio.Protocol:  # type: ignore[override]
        return self.protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Link:
    """One connection of a process to the server."""

    def __init__(self, network: Network, loop: SimLoop, factory: Callable[[], Any]) -> None:
        self.network = network
        self.loop = loop
        self.opened_at = network.simulation.now
        self.up = Pipe(self, network.server_loop, self._to_server)
        self.down = Pipe(self, loop, self._to_client)
        self.server: ServerConnection = network.redis.accept(self)
        self.transport = LinkTransport(self, factory())
        self.transport.protocol.connection_made(self.transport)

    @property
    def open(self) -> bool:
        """Whether the connection is open for the client."""
        return not self.transport.closing

    @property
    def is_pubsub(self) -> bool:
        return bool(self.server.channels) or b"pubsub" in self.server.name

    # Faults

    def cut(self) -> None:
        """End the connection on both sides now; what is in flight is lost."""
        self._lose_client()
        self.up.drop()
        self.server.closed()

    def half_open(self, for_s: float) -> None:
        """End the client's side now; the server later reads and executes what was in flight."""
        self.up.stalled_until = float("inf")
        self._lose_client()
        self.network.simulation.world.call_later(for_s, self._server_finds_the_rest)

    def stall(self, for_s: float) -> None:
        """Let the bytes of both directions wait."""
        until = self.network.simulation.now + for_s
        self.up.stalled_until = max(self.up.stalled_until, until)
        self.down.stalled_until = max(self.down.stalled_until, until)

    # The server's end (a Sink)

    def deliver(self, data: bytes) -> None:
        self.down.send(data)

    def close(self) -> None:
        """Close the server's end: the client notices it after the replies that are in flight."""
        self.up.drop()
        last = max(self.down._last_arrival, self.network.simulation.now)
        self.loop.call_at(last + self.network.latency(), self._lose_client)

    # The client's end

    def close_from_client(self) -> None:
        """Close the client's end: the server reads what is in flight, then the stream's end."""
        self._lose_client()
        when = max(self.up._last_arrival, self.network.simulation.now)
        self.network.simulation.world.call_at(when, self._server_finds_the_rest)

    def process_died(self, late_s: float = 0.0) -> None:
        """Handle the death of the client's process, whose last bytes arrive `late_s` later."""
        self.transport.closing = True
        self.down.drop()
        if late_s:
            self.up.stalled_until = float("inf")
        when = max(self.up._last_arrival, self.network.simulation.now) + late_s
        self.network.simulation.world.call_at(when, self._server_finds_the_rest)

    def _server_finds_the_rest(self) -> None:
        server_loop = self.network.server_loop

        def find() -> None:
            self.up.flush()
            self.up.drop()
            self.server.closed()

        server_loop.call_soon(find)

    def _to_server(self, data: bytes) -> None:
        if self.server.open:
            self.server.feed(data)

    def _to_client(self, data: bytes) -> None:
        if self.open:
            self.transport.protocol.data_received(data)

    def _lose_client(self) -> None:
        unanswered = bool(self.up.in_flight or self.down.in_flight or self.server.reader.has_data())
        self.down.drop()
        if not self.transport.closing and self.network.on_lost is not None:
            self.network.on_lost(self, unanswered)
        if not self.transport.closing:
            self.transport.closing = True
            error = ConnectionResetError("the simulated link ended")
            self.loop.call_soon(self.transport.protocol.connection_lost, error)
        if self in self.network.links:
            self.network.links.remove(self)


class Network:
    """All links to one SimRedis."""

    def __init__(
        self,
        simulation: Simulation,
        redis: SimRedis,
        server_loop: SimLoop,
        latency_s: tuple[float, float] = (0.0001, 0.002),
    ) -> None:
        self.simulation = simulation
        self.redis = redis
        self.server_loop = server_loop
        self.latency_s = latency_s
        self.links: list[Link] = []
        self.on_lost: Callable[[Link, bool], None] | None = None  # whether something was unanswered
        self.unreachable = False  # attempts to connect get no answer at all

    def latency(self) -> float:
        low, high = self.latency_s
        return low + (high - low) * self.simulation.rng.random() ** 2

    def links_of(self, loop: SimLoop) -> list[Link]:
        return [link for link in self.links if link.loop is loop]

    def connector(self, loop: SimLoop) -> Callable[[Callable[[], Any]], Any]:
        """Return the `connect` to inject into the code of a process."""

        async def connect(factory: Callable[[], Any]) -> asyncio.Transport:
            await asyncio.sleep(2 * self.latency())
            while self.unreachable or self.server_loop.frozen:
                await asyncio.sleep(0.05)
            link = Link(self, loop, factory)
            self.links.append(link)
            return link.transport

        return connect

    def process_died(self, loop: SimLoop, late_s: float = 0.0) -> None:
        for link in self.links_of(loop):
            link.process_died(late_s)
            self.links.remove(link)
