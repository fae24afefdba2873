"""A client's connection in simulation: the relay's end (`SimSocket`) and the client (`SimClient`).

Bytes go transport buffer -> kernel send queue -> network -> the client's receive buffer, and only
their arrival there is acknowledged, one latency later. Every stage is bounded as in reality: the
send queue by its size, the flight by the receive window, and the client reads when it likes. So
bytes can be lost at each stage, and the relay's view (`acknowledged`) always lags behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from tests.support.sim.loop import SimLoop, Simulation

HANDSHAKE_BYTES = 129
"""Size of the answer to the upgrade request, which counts as written before the first frame."""
HIGH_WATER_BYTES = 65_536
LOW_WATER_BYTES = 16_384
SEGMENT_BYTES = 1_400
CLOSE_TIMEOUT_S = 2.0
"""Seconds that the relay's end waits for a close to be answered and the kernel queue to drain."""


class Receiver(Protocol):
    def messages_received(self, messages: list[bytes]) -> None: ...
    def writable(self) -> None: ...
    def closed(self, code: int, detail: Any) -> None: ...


def frame(opcode: int, payload: bytes) -> bytes:
    """Return one unmasked websocket frame."""
    size = len(payload)
    first = bytes((0x80 | opcode,))
    if size < 126:
        return first + bytes((size,)) + payload
    if size < 65_536:
        return first + b"\x7e" + size.to_bytes(2, "big") + payload
    return first + b"\x7f" + size.to_bytes(8, "big") + payload


class SimSocket:
    """The relay's end; a `RelaySocket` (relay/server/socket.py)."""

    def __init__(
        self,
        simulation: Simulation,
        loop: SimLoop,
        client: SimClient,
        *,
        send_queue_bytes: int = 16_384,
        remote: str = "192.0.2.1",
    ) -> None:
        self.simulation = simulation
        self.loop = loop  # of the relay worker
        self.client = client
        self.remote = remote
        self.last_received = loop.time()
        self.written = 0
        self.sent: list[tuple[int, bytes]] = []  # (position after it, payload)
        self.last_look = 0  # what the worker saw when it last called `acknowledged`
        self.died_at: float | None = None  # when the relay's end noticed its end
        self.acknowledged_bytes = 0
        self.was_reset = False  # by the peer; from then on the kernel's queue does not change
        self._buffer = bytearray()
        self._discarded = False
        self._was_high = False
        self._queue = bytearray()  # in the kernel: not acknowledged, partly in flight
        self._in_flight = 0
        self._send_queue_bytes = send_queue_bytes
        self._last_arrival = 0.0
        self._receiver: Receiver | None = None
        self._inbound: deque[bytes] = deque()
        self._inbound_end: int | None = None  # close code behind the inbound messages
        self._paused = False
        self._closing = False
        self._close_code = 0
        self._over = False
        self._write(b"\0" * HANDSHAKE_BYTES)

    # RelaySocket

    def start(self, receiver: Receiver, account: Hashable | None = None) -> None:
        self._receiver = receiver
        self.loop.call_soon(self._read)

    def send_messages(self, payloads: list[bytes]) -> int:
        if self._closing or self._over:
            self.written += sum(len(frame(2, payload)) for payload in payloads)
            return self.written  # counted, but never sent
        data = bytearray()
        for payload in payloads:
            data += frame(2, payload)
            self.sent.append((self.written + len(data), payload))
        self._write(data)
        return self.written

    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def acknowledged(self) -> int:
        self.last_look = self.acknowledged_bytes
        return self.acknowledged_bytes

    def drained(self) -> bool:
        return not self._buffer and not self._queue

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self.loop.call_soon(self._read)

    def close(self, code: int, reason: str) -> None:
        if self._closing or self._over:
            return
        self._closing = True
        self._close_code = code
        if self._buffer:
            self._discard()
        else:
            self._write(frame(8, code.to_bytes(2, "big") + reason.encode()))
        self.loop.call_later(CLOSE_TIMEOUT_S, self._end, code)
        self._end_when_drained()

    def abort(self) -> None:
        self._closing = True
        self._discard()
        self._end(1006)

    # The relay's process

    def process_died(self) -> None:
        """Handle the worker's death: its kernel sends what it has, then ends the connection."""
        self._discard()
        self._closing = self._over = True
        self.died_at = self.simulation.now
        self._hang_up_when_empty()

    def _write(self, data: bytes | bytearray) -> None:
        self.written += len(data)
        self._buffer += data
        self._fill_kernel()

    def _fill_kernel(self) -> None:
        space = self._send_queue_bytes - len(self._queue)
        if space > 0 and self._buffer:
            self._queue += self._buffer[:space]
            del self._buffer[:space]
            self._transmit()
        if len(self._buffer) > HIGH_WATER_BYTES:
            self._was_high = True
        elif self._was_high and len(self._buffer) <= LOW_WATER_BYTES:
            self._was_high = False
            if self._receiver is not None and not self._over:
                self._receiver.writable()

    def _discard(self) -> None:
        self._discarded = self._discarded or bool(self._buffer)
        self._buffer.clear()

    def _read(self) -> None:
        """Pass everything that has arrived to the receiver, as one read."""
        if self._receiver is None or self._paused or self._over:
            return
        messages, self._inbound = list(self._inbound), deque()
        if messages:
            self.last_received = self.loop.time()
            if not self._closing:
                self._receiver.messages_received(messages)
        if self._inbound_end is not None and not self._inbound and not self._paused:
            code, self._inbound_end = self._inbound_end, None
            if code == 1006:
                self._discard()
                self._end(1006)
            else:
                self._peer_closed(code)

    def _peer_closed(self, code: int) -> None:
        if self._closing:
            self._end_when_drained()
            return
        self._closing = True
        self._close_code = code
        self.loop.call_later(CLOSE_TIMEOUT_S, self._end, code)
        self._end_when_drained()

    def _end_when_drained(self) -> None:
        if self._closing and not self._over and self.drained():
            self.loop.call_soon(self._end, self._close_code)

    def _end(self, code: int) -> None:
        if self._over:
            return
        self._over = True
        self.died_at = self.simulation.now
        self._discard()
        self._hang_up_when_empty()
        if self._receiver is not None:
            self._receiver.closed(code, None)

    # The relay's kernel, which runs whether or not the process does

    def _transmit(self) -> None:
        client = self.client
        while True:
            unsent = len(self._queue) - self._in_flight
            size = min(SEGMENT_BYTES, unsent, client.window() - self._in_flight)
            if size <= 0 or client.path_broken or self.was_reset:
                return
            start = self._in_flight
            segment = bytes(self._queue[start : start + size])
            self._in_flight += size
            self._last_arrival = max(self._last_arrival, self.simulation.now + client.latency())
            self.simulation.world.call_at(self._last_arrival, client.arrive, segment)

    def acknowledge(self, size: int) -> None:
        """Handle an acknowledgement from the client's kernel."""
        if self.was_reset:
            return
        self.acknowledged_bytes += size
        self._in_flight -= size
        del self._queue[:size]
        self._transmit()
        self._hang_up_when_empty()
        if not self._over:
            self.loop.call_soon(self._kernel_has_room)

    def window_opened(self) -> None:
        self._transmit()

    def _kernel_has_room(self) -> None:
        if not self._over:
            self._fill_kernel()
            self._end_when_drained()

    def _hang_up_when_empty(self) -> None:
        if self._over and not self._queue:
            self.simulation.world.call_later(self.client.latency(), self.client.hung_up)

    def inbound(self, payload: bytes) -> None:
        """Handle a message from the client."""
        self._inbound.append(payload)
        self.loop.call_soon(self._read)

    def inbound_end(self, code: int) -> None:
        """Handle a close frame (its code) or a reset (1006) from the client."""
        if code == 1006:
            self._inbound.clear()
            self.was_reset = True
        self._inbound_end = code
        self.loop.call_soon(self._read)


class SimClient:
    """A twin's end of the connection, from its kernel up to its application."""

    def __init__(
        self,
        simulation: Simulation,
        loop: SimLoop,
        *,
        latency_s: tuple[float, float] = (0.0002, 0.003),
        receive_window_bytes: int = 8_192,
        send_queue_bytes: int = 16_384,
        remote: str = "192.0.2.1",
    ) -> None:
        """
        Args:
            loop: loop of the relay worker that accepted the connection.
        """
        self.simulation = simulation
        self.latency_s = latency_s
        self.receive_window_bytes = receive_window_bytes
        self.arrived: list[bytes] = []  # messages completely in this kernel, in order
        self.read: list[bytes] = []  # those the application has read
        self.close_code: int | None = None  # of the close frame, or 1006
        self.reading = True
        self.path_broken = False
        self.was_reset = False
        self.on_message: Callable[[bytes], None] | None = None  # at arrival
        self._bytes = bytearray()
        self._handshake_left = HANDSHAKE_BYTES
        self._unread_bytes = 0
        self._last_arrival = 0.0
        self._said_goodbye = False
        self.socket = SimSocket(
            simulation, loop, self, send_queue_bytes=send_queue_bytes, remote=remote
        )

    @property
    def alive(self) -> bool:
        return self.close_code is None and not self.was_reset and not self.path_broken

    @property
    def ended(self) -> bool:
        return self.socket.died_at is not None

    @property
    def acknowledged_position(self) -> int:
        socket = self.socket
        return socket.acknowledged_bytes if socket.was_reset else socket.last_look

    def latency(self) -> float:
        low, high = self.latency_s
        return low + (high - low) * self.simulation.rng.random() ** 2

    def window(self) -> int:
        return max(0, self.receive_window_bytes - self._unread_bytes)

    # What the application does

    def send(self, payload: bytes) -> None:
        self._towards_relay(self.socket.inbound, payload)

    def stop_reading(self) -> None:
        self.reading = False

    def start_reading(self) -> None:
        self.reading = True
        self._take()

    def close(self, code: int = 1000) -> None:
        """Send a close frame, and continue to read until the relay ends the connection."""
        if self.alive and not self._said_goodbye:
            self._said_goodbye = True
            self.start_reading()
            self._towards_relay(self.socket.inbound_end, code)

    def reset(self) -> None:
        """End abruptly: everything in flight and unread is lost; the relay notices the reset."""
        if self.was_reset or self.close_code is not None:
            return
        self.was_reset = True
        if not self.path_broken:
            self._towards_relay(self.socket.inbound_end, 1006, even_after_reset=True)

    def vanish(self) -> None:
        """Break the path (half-open): nothing passes in either direction, no side is notified."""
        self.path_broken = True

    def _towards_relay(
        self, deliver: Callable[[Any], None], what: Any, even_after_reset: bool = False
    ) -> None:
        if (self.alive or even_after_reset) and self.close_code is None:
            self._last_arrival = max(self._last_arrival, self.simulation.now + self.latency())
            self.simulation.world.call_at(self._last_arrival, self._pass, deliver, what)

    def _pass(self, deliver: Callable[[Any], None], what: Any) -> None:
        if not self.path_broken and (not self.was_reset or what == 1006):
            deliver(what)

    # What its kernel does

    def arrive(self, segment: bytes) -> None:
        if self.was_reset or self.path_broken:
            return
        self._unread_bytes += len(segment)
        self._parse(segment)
        self.simulation.world.call_later(self.latency(), self._acknowledge, len(segment))
        if self.reading:
            self._take()

    def _acknowledge(self, size: int) -> None:
        if not self.path_broken:
            self.socket.acknowledge(size)

    def _take(self) -> None:
        if self._unread_bytes:
            self._unread_bytes = 0
            self.simulation.world.call_later(self.latency(), self.socket.window_opened)
        self.read = list(self.arrived)
        if self.close_code is not None and not self._said_goodbye:
            self._said_goodbye = True

    def _parse(self, segment: bytes) -> None:
        skipped = min(self._handshake_left, len(segment))
        self._handshake_left -= skipped
        data = self._bytes
        data += segment[skipped:]
        while len(data) >= 2:
            size, start = data[1] & 0x7F, 2
            if size == 126:
                size, start = int.from_bytes(data[2:4], "big"), 4
            elif size == 127:
                size, start = int.from_bytes(data[2:10], "big"), 10
            if len(data) < start + size:
                return
            opcode, payload = data[0] & 0x0F, bytes(data[start : start + size])
            del data[: start + size]
            if opcode == 2:
                self.arrived.append(payload)
                if self.on_message is not None:
                    self.on_message(payload)
            elif opcode == 8:
                self.close_code = int.from_bytes(payload[:2], "big") if payload else 1005

    def hung_up(self) -> None:
        if not self.path_broken and self.close_code is None:
            self.close_code = 1006
