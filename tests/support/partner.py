"""Fake relays: HTTP servers that receive federated messages and answer as a test specifies.

A `Partner` listens on the port of its domain, records every request, and passes it to its
behaviour, which may be changed at any time: `answer(500)`, `silence`, `garbage`, `endless_body`,
... An `OurKind` behaves as a relay of this kind does, with the batch form and memory of deliveries.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from proto.federation import batch
from proto.rmb import types_pb2 as pb
from tests.support.stream_server import StreamServer


@dataclass(frozen=True)
class Delivery:
    """One request as it was received.

    Attributes:
        at: time of receipt, by `time.monotonic`.
        connection: number of its TCP connection.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float
    connection: int

    @property
    def batched(self) -> bool:
        """Whether it has the batch form."""
        return self.path == batch.PATH

    def records(self) -> list[batch.Record]:
        """Return its messages; one of the single form without an id has an empty id."""
        if self.batched:
            return batch.decode(self.body)[1]
        name = self.headers.get("rmb-delivery", "")
        delivery_id = name.removesuffix(batch.RETRY_SUFFIX).rpartition("/")[2]
        retry = name.endswith(batch.RETRY_SUFFIX)
        return [batch.Record(delivery_id.encode(), retry, self.body)]

    def envelopes(self) -> list[pb.Envelope]:
        """Return its messages, parsed."""
        return [pb.Envelope.FromString(record.envelope) for record in self.records()]


Behaviour = Callable[[Delivery, asyncio.StreamWriter], Awaitable[None]]


class HangUpError(Exception):
    """Raised by a behaviour to end the connection."""


class Partner:
    """One server.

    Attributes:
        domain: domain that twins list.
        deliveries: every request, in order of arrival.
        accepted: number of connections that were made.
        behave: behaviour that answers requests.
    """

    def __init__(
        self,
        port: int,
        behave: Behaviour | None = None,
        hosts: Sequence[str] = ("127.0.0.1",),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port = port
        self.domain = f"127.0.0.1:{port}"
        self.deliveries: list[Delivery] = []
        self.behave = behave or answer(202)
        self._server = StreamServer(self._serve)
        self.accepted = 0
        self._hosts = hosts
        self._tls = tls

    async def start(self) -> Partner:
        """Listen; the caller stops it."""
        await self._server.start(self._hosts, self.port, ssl=self._tls)
        return self

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        await self._server.stop()

    def envelopes(self) -> list[pb.Envelope]:
        """Return every message that was sent here, as often as it was."""
        return [envelope for delivery in self.deliveries for envelope in delivery.envelopes()]

    def payloads(self) -> list[bytes]:
        """Return the payloads of `envelopes`."""
        return [envelope.plain for envelope in self.envelopes()]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        number = self.accepted
        try:
            while True:
                delivery = await _read_request(reader, number)
                self.deliveries.append(delivery)
                await self.behave(delivery, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, HangUpError):
            pass  # the connection ends, at either side's request


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Delivery:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Delivery(method, path, headers, body, time.monotonic(), connection)


def respond(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of an answer; `retry_after="1"` is the header `retry-after: 1`."""
    lines = [f"HTTP/1.1 {status} Answer", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answer(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """Give the same answer each time; with 202, behave as a relay of the reference kind."""

    async def behave(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        writer.write(respond(status, body, **headers))

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """Use each behaviour for one request; the last one remains."""
    left = list(behaviours)

    async def behave(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(delivery, writer)

    return behave


def slow(delay_s: float, then: Behaviour) -> Behaviour:
    """Delay a behaviour."""

    async def behave(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(delay_s)
        await then(delivery, writer)

    return behave


async def silence(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
    """Read the request and never answer."""
    await asyncio.sleep(3600)


async def hang_up(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
    """Read the request and end the connection."""
    raise HangUpError


async def garbage(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
    """Answer with bytes that are not HTTP."""
    writer.write(b"\x00\xff\xfe 202 ok\r\n\r\n" * 20)
    raise HangUpError


class Endless:
    """Behaviour that answers with a head and then repeats the same bytes without end.

    Attributes:
        written_bytes: number of bytes sent after the head.
    """

    def __init__(self, head: bytes, chunk: bytes) -> None:
        self.written_bytes = 0
        self._head = head
        self._chunk = chunk

    async def __call__(self, delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        writer.write(self._head)
        while True:
            writer.write(self._chunk)
            await writer.drain()
            self.written_bytes += len(self._chunk)


def endless_body(status: int) -> Endless:
    """Answer with a body that does not end."""
    head = f"HTTP/1.1 {status} Answer\r\ntransfer-encoding: chunked\r\n\r\n"
    return Endless(head.encode(), b"10000\r\n" + bytes(0x10000) + b"\r\n")


def endless_head() -> Endless:
    """Answer with headers that do not end."""
    return Endless(b"HTTP/1.1 202 Answer\r\n", b"x-more: " + b"x" * 4096 + b"\r\n")


@dataclass
class OurKind:
    """Behaviour of a relay of this kind: it accepts both forms and remembers deliveries.

    Attributes:
        offer: whether each answer offers the batch form; without it that form is refused.
        status: function that judges each message; 202 accepts it.
        accepted: ids and bytes of accepted messages, once each, in order.
    """

    offer: bool = True
    status: Callable[[batch.Record], int] = lambda record: batch.ACCEPTED
    accepted: dict[bytes, bytes] = field(default_factory=dict)

    async def __call__(self, delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        headers = {batch.OFFER_HEADER: batch.OFFER} if self.offer else {}
        if delivery.batched and not self.offer:
            writer.write(respond(404))
            return
        statuses = [self._take(record) for record in delivery.records()]
        if delivery.batched:
            writer.write(respond(200, batch.encode_answer(statuses), **headers))
        else:
            taken = batch.ACCEPTED if statuses[0] == batch.HAD_ALREADY else statuses[0]
            writer.write(respond(taken, **headers))

    def payloads(self) -> Iterator[bytes]:
        """Yield the payloads of accepted messages."""
        for envelope in self.accepted.values():
            yield pb.Envelope.FromString(envelope).plain

    def _take(self, record: batch.Record) -> int:
        if record.id in self.accepted:
            assert record.retry, "sent again without saying so"
            return batch.HAD_ALREADY
        status = self.status(record)
        if status == batch.ACCEPTED:
            self.accepted[record.id] = record.envelope
        return status


@contextlib.asynccontextmanager
async def partner(
    port: int, behave: Behaviour | None = None, hosts: Sequence[str] = ("127.0.0.1",)
) -> AsyncIterator[Partner]:
    """Run a partner during the block; it listens on the loopback address of each host."""
    running = await Partner(port, behave, hosts).start()
    try:
        yield running
    finally:
        await running.stop()
