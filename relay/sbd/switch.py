"""The connections under each key, here and on other workers, and the route of a packet.

    read of a socket -> Connection.messages_received -> Switch.forward
        destination here:       written to its socket, all packets of the read at once
        on another worker:      Crossing: one PUBLISH for all of a turn of the loop
        not known here:         Crossing asks Redis; packets wait for the answer, in order
        nowhere:                dropped and counted

A key becomes reachable when its client has proved it: first the key is entered in Redis, then the
client gets its `srdy`, and after that packets are written to it. An older connection of the key is
dropped, on whichever worker it is.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from proto.limits.addresses import BannedNetworks
from proto.sbd.bounds import HEADER_BYTES
from proto.sbd.errors import DropReason
from proto.sbd.frames import key_of_path
from relay.sbd.addresses import Place, Places
from relay.sbd.connection import Connection
from relay.sbd.decisions import Decisions
from relay.sbd.options import EndReason, LossReason, SbdCounts, SbdOptions
from relay.sessions.hits import host_of

if TYPE_CHECKING:
    from relay.analytics.sbd_events import SbdEvents
    from relay.sbd.crossing import Crossing
    from relay.sbd.sessions import SbdSessions
    from relay.server.socket import RelaySocket

SWEEP_S: Final = 0.1
"""Seconds between two checks for connections that have been silent for too long."""


class Switch:
    """The SBD connections of one worker.

    Attributes:
        keys: connections whose clients have proved their key, by key.
        connections: all connections.
        sessions: the connections as sessions, for operators.
        recorder: recorder of connections and packets; None: they are not recorded.
    """

    def __init__(
        self,
        options: SbdOptions,
        loop: asyncio.AbstractEventLoop,
        crossing: Crossing | None = None,
    ) -> None:
        self.options = options
        self.counts = SbdCounts()
        self.keys: dict[bytes, Connection] = {}
        self.connections: set[Connection] = set()
        self.places = Places(options, loop)
        self.sessions: SbdSessions | None = None
        self.recorder: SbdEvents | None = None
        self._crossing = crossing
        self._loop = loop
        self._timers: dict[int, list[Connection]] = {}  # by number of the sweep that checks them
        self._sweeps = 0
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def full(self) -> bool:
        """Whether the maximum number of connections is reached."""
        return len(self.connections) >= self.options.max_clients

    def open(
        self, key: bytes, nonce: bytes, socket: RelaySocket, address: str, token: str | None = None
    ) -> Connection:
        """Return a new connection for a websocket that is about to be accepted."""
        connection = Connection(self, key, nonce, socket, self.places.of(address), token)
        self.connections.add(connection)
        self.counts.opened += 1
        return connection

    def started(self, connection: Connection) -> None:
        """Check the connection's timer from now on."""
        self._look_later(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def place_changed(self, place: Place) -> None:
        """Announce that connections of an address were opened or closed."""
        if place.rate.byte_nanos:
            place.changed()
            if self._crossing is not None:
                self._crossing.sharing.changed(place)

    def authenticated(self, connection: Connection) -> None:
        """Make a client reachable that has proved its key."""
        self.counts.authenticated += 1
        if self._crossing is None:
            self._enter(connection)
        else:
            self._crossing.claim(connection, self._enter)

    def forward(self, source: Connection, packets: list[bytes]) -> None:
        """Forward packets, destination first."""
        counts, keys, key = self.counts, self.keys, source.key
        counts.received += len(packets)
        targets: dict[bytes, list[bytes]] = {}
        for packet in packets:
            destination = packet[:HEADER_BYTES]
            queue = targets.get(destination)
            if queue is None:
                queue = targets[destination] = []
            queue.append(key + packet[HEADER_BYTES:])
        if self.recorder is not None:
            self.recorder.forwarded(key, targets, len(packets))
        for destination, queue in targets.items():
            target = keys.get(destination)
            if target is not None:
                self._deliver(target, queue)
            elif self._crossing is not None:
                self._crossing.send(destination, queue)
            else:
                self.lose(LossReason.ABSENT, queue, destination)

    def arrived(self, destination: bytes, packets: list[bytes]) -> None:
        """Deliver packets that arrived from another worker, source first."""
        target = self.keys.get(destination)
        if target is None:
            self.lose(LossReason.ABSENT, packets, destination)
        else:
            self._deliver(target, packets)

    def lose(self, reason: LossReason, packets: list[bytes], destination: bytes) -> None:
        """Count packets for one key that are not delivered, source first; at their senders too."""
        if packets:
            self.counts.lost[reason] += len(packets)
            for packet in packets:
                source = self.keys.get(packet[:HEADER_BYTES])
                if source is not None:
                    source.drops += 1
            if self.recorder is not None:
                self.recorder.dropped(destination, packets, reason)

    def claimed(self, connection: Connection) -> None:
        """Record that a connection has its epoch, and is a session from now on."""
        if self.sessions is not None:
            self.sessions.opened(connection)

    def decide(self, decisions: Decisions, networks: BannedNetworks) -> None:
        """Apply the decisions of operators.

        Args:
            decisions: decisions about keys, and about rate limits.
            networks: banned networks.
        """
        limited = {*self.places.decisions.keys, *decisions.keys}
        self.places.decisions = decisions
        for connection in list(self.connections):
            if connection.key in decisions.banned:
                connection.end(EndReason.BANNED)
            elif networks and networks.covers(host_of(connection.address)):
                connection.end(EndReason.ADDRESS_BANNED)
        for key in map(key_of_path, limited):
            if key in self.keys:
                self._count(self.keys[key])
        for place in self.places.apply_limits():
            self.place_changed(place)

    def left(self, connection: Connection, reason: DropReason | EndReason) -> None:
        """Record that a connection has ended."""
        self.connections.discard(connection)
        self.counts.ended[reason] += 1
        if self.recorder is not None:
            self.recorder.closed(connection, reason)
        if self.keys.get(connection.key) is connection:
            del self.keys[connection.key]
        if self.sessions is not None and connection.epoch:
            self.sessions.closed(connection, reason)
        if self._crossing is not None:
            self._crossing.release(connection)

    def stop(self) -> None:
        """End all connections, because the worker stops."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.end(EndReason.DRAINED)

    def _enter(self, connection: Connection) -> None:
        if connection.ended:
            return
        former = self.keys.get(connection.key)
        connection.ready()
        self.keys[connection.key] = connection
        if self.recorder is not None:
            self.recorder.opened(connection)
        if former is not None:
            former.end(EndReason.REPLACED)
        if self.places.decisions.keys:
            self._count(connection)

    def _count(self, connection: Connection) -> None:
        """Count a proved key's bytes for the key if it has a limit, else for its address."""
        own = self.places.of_key(connection.key)
        connection.move(own or self.places.of(host_of(connection.address)))

    def _deliver(self, target: Connection, packets: list[bytes]) -> None:
        counts, before = self.counts, target.bytes_out
        if target.deliver(packets):
            counts.delivered += len(packets)
            counts.delivered_bytes += target.bytes_out - before
        else:
            self.lose(LossReason.SLOW_READER, packets, target.key)

    # --- time -------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self._sweeps += 1
        now_ns = time.monotonic_ns()
        for connection in self._timers.pop(self._sweeps, ()):
            if not connection.ended:
                connection.handle_timer(now_ns)
                self._look_later(connection)
        if self._sweeps % 100 == 0:
            self.places.forget(now_ns)
        if self.connections:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        else:
            self._sweeper = None
            self._timers.clear()

    def _look_later(self, connection: Connection) -> None:
        due_ns = connection.next_timer()
        if connection.ended or due_ns is None:
            return
        wait_s = max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
        self._timers.setdefault(self._sweeps + 1 + int(wait_s / SWEEP_S), []).append(connection)
