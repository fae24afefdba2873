"""Clients that connect all at once, on bare sockets, so that their own cost hides nothing.

A client on an event loop costs a generator 150 to 300 us of CPU time, half as much as the relay
takes to sign it in, and on a machine with few cores they share these. A client here is a socket and
some bytes of state, and one loop over an epoll object serves all of them. The loop blocks the
generator, which does nothing else meanwhile.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from time import monotonic, perf_counter_ns, process_time
from typing import Any, Final
from urllib.parse import urlsplit

from proto.rmb.types_pb2 import Envelope
from tests.bench.clients import UPGRADE_ANSWER_BYTES, source_address

READ_BYTES: Final = 65_536
POLL_S: Final = 0.05
EVENTS: Final = 512
CONNECTS_AT_ONCE: Final = 64
"""Connections begun before answers are read again, if all clients may connect at once."""
HEAD_END: Final = b"\r\n\r\n"
BINARY_FRAME: Final = 0x82
CLOSE_FRAME: Final = 0x88
LONG_LENGTH: Final = 126
CLOSE_ANSWER: Final = b"\x88\x80\0\0\0\0"  # empty, and masked with zeros


class RushClient:
    """One connection: the upgrade, then messages, until the relay closes it."""

    __slots__ = ("_data", "closed", "request", "sock", "twin", "upgraded")

    def __init__(self, twin: int, sock: socket.socket, request: bytes) -> None:
        self.twin = twin
        self.sock = sock
        self.request = request  # empty once it is written
        self.upgraded = False
        self.closed = False  # by the relay
        self._data = b""

    def take(self, data: bytes) -> list[bytes]:
        """Parse received data; return the messages in it.

        Raises:
            ConnectionError: The relay refused the upgrade, or ended the connection before it.
        """
        if not data:
            if not self.upgraded:
                raise ConnectionError(f"twin {self.twin}: the connection ended before the upgrade")
            self.closed = True
            return []
        data = self._data + data
        if not self.upgraded:
            head, end, data = data.partition(HEAD_END)
            if not end:
                if len(head) > UPGRADE_ANSWER_BYTES:
                    raise ConnectionError(f"twin {self.twin}: the answer does not end")
                self._data = head
                return []
            status = head.split(b"\r\n", 1)[0]
            if b" 101 " not in status + b" ":
                raise ConnectionError(f"twin {self.twin}: {status.decode('latin-1')}")
            self.upgraded = True
        return self._frames(data)

    def _frames(self, data: bytes) -> list[bytes]:
        messages, at = [], 0
        while len(data) - at >= 2:
            size, begin = data[at + 1], at + 2
            if size >= LONG_LENGTH:
                begin += 2 if size == LONG_LENGTH else 8
                if len(data) < begin:
                    break
                size = int.from_bytes(data[at + 2 : begin], "big")
            if len(data) < begin + size:
                break
            if data[at] == BINARY_FRAME:
                messages.append(data[begin : begin + size])
            elif data[at] == CLOSE_FRAME:
                self.closed = True
            at = begin + size
        self._data = data[at:]
        return messages


class Rush:
    """All clients of one generator."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._clients: dict[int, RushClient] = {}  # by descriptor
        self._signed_in = 0  # in this rush
        self._signed_in_ns = 0  # time of the last sign-in
        self._received: Counter[tuple[int, str]] = Counter()  # by twin and uid, in this rush

    def connect(
        self,
        url: str,
        tokens: Mapping[int, str],
        twins: Sequence[int],
        at_once: int,
        mail: Mapping[str, int],
        timeout_s: float,
    ) -> dict[str, Any]:
        """Sign in twins, and wait until they have received the messages in their queues.

        Args:
            url: URL of the server.
            tokens: tokens of the twins.
            twins: twins that each get a connection, which stays open.
            at_once: number of connections begun and not yet signed in; 0: no limit.
            mail: uid and twin of each message that waits in their queues.
            timeout_s: seconds for all of this.

        Returns:
            The times at which it began, the last client was signed in, and everything had ended;
                the CPU seconds of this generator; the numbers of messages lost, doubled and not
                expected, and of clients that did not sign in.
        """
        address = urlsplit(url)
        place = (str(address.hostname), int(address.port or 80))
        self._signed_in, self._signed_in_ns = 0, 0
        self._received.clear()
        wanted = {(twin, uid) for uid, twin in mail.items()}
        waiting, begun = iter(twins), 0
        began_ns, cpu_s, deadline = perf_counter_ns(), process_time(), monotonic() + timeout_s
        while (self._signed_in < len(twins) or len(self._received) < len(wanted)) and (
            monotonic() < deadline
        ):
            room = at_once - (begun - self._signed_in) if at_once else CONNECTS_AT_ONCE
            for twin in islice(waiting, room):
                self._begin(place, address.netloc, twin, tokens[twin])
                begun += 1
            self._serve(0.0 if not at_once and begun < len(twins) else POLL_S)
        ended_ns = perf_counter_ns()
        self._serve_all()  # receive duplicates, if there are any
        return {
            "began_ns": began_ns,
            "signed_in_ns": self._signed_in_ns,
            "ended_ns": ended_ns,
            "cpu_s": process_time() - cpu_s,
            "absent": len(twins) - self._signed_in,
            "lost": len(wanted - self._received.keys()),
            "doubled": sum(self._received.values()) - len(self._received),
            "strays": len(self._received.keys() - wanted),
        }

    def until_closed(self, timeout_s: float) -> int:
        """Wait until the relay has closed every connection; return the number still open."""
        deadline = monotonic() + timeout_s
        while self._clients and monotonic() < deadline:
            self._serve(POLL_S)
        return len(self._clients)

    def end(self) -> None:
        """Drop all connections."""
        for client in self._clients.values():
            client.sock.close()
        self._clients.clear()

    def _begin(self, place: tuple[str, int], host: str, twin: int, token: str) -> None:
        request = (
            f"GET /?{token} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        ).encode()
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((source_address(twin), 0))
        sock.connect_ex(place)
        descriptor = sock.fileno()
        self._clients[descriptor] = RushClient(twin, sock, request)
        self._poll.register(descriptor, select.EPOLLOUT)

    def _serve(self, wait_s: float) -> int:
        """Handle the sockets that are ready; return their number."""
        events = self._poll.poll(wait_s, EVENTS)
        for descriptor, _ in events:
            client = self._clients[descriptor]
            if client.request:
                client.sock.send(client.request)
                client.request = b""
                self._poll.modify(descriptor, select.EPOLLIN)
                continue
            before = client.upgraded
            for message in client.take(client.sock.recv(READ_BYTES)):
                self._received[client.twin, Envelope.FromString(message).uid] += 1
            if client.upgraded and not before:
                self._signed_in += 1
                self._signed_in_ns = perf_counter_ns()
            if client.closed:
                self._leave(descriptor, client)
        return len(events)

    def _serve_all(self) -> None:
        while self._serve(POLL_S):
            pass

    def _leave(self, descriptor: int, client: RushClient) -> None:
        """Answer a close frame of the relay, and end the connection."""
        del self._clients[descriptor]
        with contextlib.suppress(ConnectionError):  # the relay may have closed it already
            client.sock.send(CLOSE_ANSWER)
        client.sock.close()
