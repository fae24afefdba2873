"""Other relays for tests: real HTTP servers on loopback that answer as they are told.

A reference relay takes one envelope in each POST to `/`; one of our kind takes the batch
form as well. What they answer, and when, is changed while they run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from proto.federation import batch
from proto.rmb.types_pb2 import Envelope

Answer = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
Status = Callable[[Envelope], int]


@dataclass
class Delivery:
    """One message that came, taken or not."""

    id: str
    retry: bool
    envelope: Envelope
    status: int


@dataclass
class PartnerServer:
    """A relay somewhere else.

    Attributes:
        offers: it takes batches and says so.
        status: what a message is answered with.
        answer: answers a request in place of everything else.
        gate: requests wait for it.
        deliveries: the messages that came, in order.
        requests: path and headers of the requests that came.
    """

    offers: bool = False
    status: Status = lambda _: 202
    answer: Answer | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    deliveries: list[Delivery] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    port: int = 0
    _runner: web.AppRunner | None = None

    @property
    def domain(self) -> str:
        """As twins list it."""
        return f"127.0.0.1:{self.port}"

    @property
    def taken(self) -> list[Envelope]:
        """The messages it accepted, each once, in order."""
        seen: set[str] = set()
        found = []
        for each in self.deliveries:
            if each.status == 202 and each.id not in seen:
                found.append(each.envelope)
                seen.add(each.id)
        return found

    @property
    def uids(self) -> list[str]:
        """Their uids."""
        return [envelope.uid for envelope in self.taken]

    async def start(self, tls: ssl.SSLContext | None = None) -> PartnerServer:
        """Listens; on the same port again after `stop`."""
        self.gate.set()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/", self._single)
        app.router.add_post(batch.PATH, self._batch)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """Ends, with all its connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _single(self, request: web.Request) -> web.StreamResponse:
        body = await self._came(request)
        if self.answer is not None:
            return await self.answer(request, body)
        name = batch.parse_delivery_header(request.headers.get(batch.DELIVERY_HEADER, ""))
        status = self._judge(*(name[1:] if name else ("", False)), body)
        return web.Response(status=status, headers=self._headers())

    async def _batch(self, request: web.Request) -> web.StreamResponse:
        body = await self._came(request)
        if self.answer is not None:
            return await self.answer(request, body)
        if not self.offers:
            return web.Response(status=404)
        statuses = self.take_batch(body)
        return web.Response(status=200, body=batch.encode_answer(statuses), headers=self._headers())

    def take_batch(self, body: bytes) -> list[int]:
        """Judges each message of a batch."""
        _, records = batch.decode(body)
        statuses = []
        stopped: set[int] = set()
        for record in records:
            twin = Envelope.FromString(record.envelope).destination.twin
            status = (
                503
                if twin in stopped
                else self._judge(record.id.decode(), record.retry, record.envelope)
            )
            if status >= 500:
                stopped.add(twin)
            statuses.append(status)
        return statuses

    async def _came(self, request: web.Request) -> bytes:
        self.requests.append((request.path, dict(request.headers)))
        body = await request.read()
        await self.gate.wait()
        return body

    def _judge(self, delivery_id: str, retry: bool, body: bytes) -> int:
        envelope = Envelope.FromString(body)
        status = self.status(envelope)
        if (
            status == 202
            and retry
            and any(each.id == delivery_id and each.status == 202 for each in self.deliveries)
        ):
            status = 208
        self.deliveries.append(Delivery(delivery_id, retry, envelope, status))
        return status

    def _headers(self) -> dict[str, str]:
        return {**self.headers, **({batch.OFFER_HEADER: batch.OFFER} if self.offers else {})}


@contextlib.asynccontextmanager
async def partner(
    offers: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[PartnerServer]:
    """A relay for one test."""
    server = PartnerServer(offers)
    await server.start(tls)
    try:
        yield server
    finally:
        server.gate.set()
        await server.stop()
