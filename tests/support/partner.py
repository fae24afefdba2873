"""Relays that are none: HTTP servers that take federated messages and answer as a test wants.

A `Partner` listens on a port its domain names, notes every request, and hands it to its behaviour,
which may be changed at any time: `answer(500)`, `silence`, `garbage`, `endless_body`, ... A
`OurKind` behaves as a relay of this kind does, batch form and memory of deliveries included.
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
    """One request, as it came.

    Attributes:
        at: by `time.monotonic`.
        connection: number of the TCP connection it came on.
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
        """Its messages; one of the single form without an id has an empty one."""
        if self.batched:
            return batch.decode(self.body)[1]
        name = self.headers.get("rmb-delivery", "")
        delivery_id = name.removesuffix(batch.RETRY_SUFFIX).rpartition("/")[2]
        retry = name.endswith(batch.RETRY_SUFFIX)
        return [batch.Record(delivery_id.encode(), retry, self.body)]

    def envelopes(self) -> list[pb.Envelope]:
        """Its messages, read."""
        return [pb.Envelope.FromString(record.envelope) for record in self.records()]


Behaviour = Callable[[Delivery, asyncio.StreamWriter], Awaitable[None]]


class HangUpError(Exception):
    """The behaviour wants the connection ended."""


class Partner:
    """One server.

    Attributes:
        domain: what twins list.
        deliveries: every request, in order of arrival.
        accepted: number of connections that were made.
        behave: answers them.
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
        """Stop listening and end every connection: nobody is there any more."""
        await self._server.stop()

    def envelopes(self) -> list[pb.Envelope]:
        """Every message that was sent here, each time it was."""
        return [envelope for delivery in self.deliveries for envelope in delivery.envelopes()]

    def payloads(self) -> list[bytes]:
        """Of `envelopes`, the payloads."""
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
            pass  # the end of a connection, whoever wanted it


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Delivery:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Delivery(method, path, headers, body, time.monotonic(), connection)


def respond(status: int, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of an answer; `retry_after="1"` is the header `retry-after: 1`."""
    lines = [f"HTTP/1.1 {status} Answer", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answer(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """Always the same answer; with 202 it is a relay of the reference kind."""

    async def behave(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        writer.write(respond(status, body, **headers))

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One request each; the last behaviour stays."""
    left = list(behaviours)

    async def behave(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(delivery, writer)

    return behave


def slow(delay_s: float, then: Behaviour) -> Behaviour:
    """Takes its time."""

    async def behave(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(delay_s)
        await then(delivery, writer)

    return behave


async def silence(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
    """Takes the request and never answers."""
    await asyncio.sleep(3600)


async def hang_up(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
    """Takes the request and ends the connection."""
    raise HangUpError


async def garbage(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
    """Answers with bytes that are no HTTP."""
    writer.write(b"\x00\xff\xfe 202 ok\r\n\r\n" * 20)
    raise HangUpError


class Endless:
    """Answers with a head and then the same bytes for ever.

    Attributes:
        written_bytes: how much of it went out.
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
    """A body that does not end."""
    head = f"HTTP/1.1 {status} Answer\r\ntransfer-encoding: chunked\r\n\r\n"
    return Endless(head.encode(), b"10000\r\n" + bytes(0x10000) + b"\r\n")


def endless_head() -> Endless:
    """Headers that do not end."""
    return Endless(b"HTTP/1.1 202 Answer\r\n", b"x-more: " + b"x" * 4096 + b"\r\n")


@dataclass
class OurKind:
    """Behaves as a relay of this kind: takes both forms and remembers deliveries.

    Attributes:
        offer: say in each answer that the batch form is taken; without it that form is refused.
        status: judges each message; 202 takes it.
        accepted: ids and bytes of what was taken, once each, in order.
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
        """Of what was taken."""
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
    """A partner for the length of the block; it listens on the loopback address of each host."""
    running = await Partner(port, behave, hosts).start()
    try:
        yield running
    finally:
        await running.stop()
