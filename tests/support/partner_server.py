"""A partner relay that receives messages, for tests of the outgoing path.

On top of `tests.support.partner`, it judges each message by a function of its envelope, accepts the
batch form if it `offers` it, and can be held up, stopped and started again on its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from proto.federation import batch
from proto.rmb.types_pb2 import Envelope
from tests.support.partner import Behaviour, Delivery, Partner, respond
from tests.support.redis_servers import free_port


@dataclass(frozen=True)
class Message:
    """One message received, accepted or not."""

    id: str
    retry: bool
    envelope: Envelope
    status: int


class PartnerServer:
    """One partner relay.

    Attributes:
        offers: whether it accepts batches and offers that in its answers.
        status: function that returns the status of a message.
        answer: behaviour that answers requests instead of everything else.
        headers: headers of each answer.
        gate: event that requests wait for.
        messages: messages in order of arrival, as often as they arrived.
    """

    def __init__(self, offers: bool, tls: ssl.SSLContext | None = None) -> None:
        self.offers = offers
        self.status: Callable[[Envelope], int] = lambda _: batch.ACCEPTED
        self.answer: Behaviour | None = None
        self.headers: dict[str, str] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.messages: list[Message] = []
        self._server = Partner(free_port(), self._behave, tls=tls)

    @property
    def port(self) -> int:
        """Port on which it listens."""
        return self._server.port

    @property
    def domain(self) -> str:
        """Domain that twins list."""
        return self._server.domain

    @property
    def requests(self) -> list[Delivery]:
        """Requests received."""
        return self._server.deliveries

    @property
    def taken(self) -> list[Envelope]:
        """Messages accepted, in order."""
        return [each.envelope for each in self.messages if each.status == batch.ACCEPTED]

    @property
    def uids(self) -> list[str]:
        """Uids of the accepted messages."""
        return [envelope.uid for envelope in self.taken]

    async def start(self) -> None:
        """Listen."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening, and end all connections."""
        await self._server.stop()

    def judge(self, delivery: Delivery) -> list[int]:
        """Decide on the messages of a request, as a relay of our kind does."""
        statuses: list[int] = []
        stopped: set[int] = set()
        for record in delivery.records():
            envelope = Envelope.FromString(record.envelope)
            twin = envelope.destination.twin
            status = 503 if twin in stopped else self._judge(record, envelope)
            if status >= 500:
                stopped.add(twin)
            self.messages.append(Message(record.id.decode(), record.retry, envelope, status))
            statuses.append(status)
        return statuses

    def _judge(self, record: batch.Record, envelope: Envelope) -> int:
        if record.retry:
            had = {each.id for each in self.messages if each.status == batch.ACCEPTED}
            if record.id.decode() in had:
                return batch.HAD_ALREADY
        return self.status(envelope)

    async def take(self, delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        """Answer as a relay does."""
        if delivery.batched and not self.offers:
            writer.write(respond(404))
        else:
            statuses = self.judge(delivery)
            offer = {batch.OFFER_HEADER: batch.OFFER} if self.offers else {}
            headers = {**self.headers, **offer}
            if delivery.batched:
                writer.write(respond(200, batch.encode_answer(statuses), **headers))
            else:
                writer.write(respond(statuses[0], **headers))

    async def _behave(self, delivery: Delivery, writer: asyncio.StreamWriter) -> None:
        await self.gate.wait()
        await (self.answer or self.take)(delivery, writer)


@contextlib.asynccontextmanager
async def partner(
    offers: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[PartnerServer]:
    """Run a partner relay during the block."""
    server = PartnerServer(offers, tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
