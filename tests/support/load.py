"""A load of senders and receivers that behave as released clients do: they always reconnect.

Everything sent and received is entered in a `Ledger`. `finish` ends the senders after a last
barrier, waits until the receivers have everything, and returns; then the ledger is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from proto.rmb import challenge
from proto.rmb import types_pb2 as pb
from tests.support import envelopes
from tests.support.envelopes import SessionKey
from tests.support.identities import Twin
from tests.support.ledger import Ledger, ReceiverConnection, SenderConnection
from tests.support.rmb_client import RmbClient, connect

REDIAL_S = 0.05
LOST = (ConnectionError, ConnectionClosed, InvalidHandshake, InvalidMessage, OSError, TimeoutError)


class Load:
    """Senders and receivers, one task each: senders run until `finish`, receivers until `cancel`.

    Attributes:
        url: function that returns the URL for the next connection, so that a test may move clients.
        window: number of messages sent between two barriers.
        signed: whether messages are signed by their sender, as other relays require.
        received: number of messages that all receivers received.
        last_receipt: time of the last receipt, by `time.monotonic`.
    """

    def __init__(
        self, url: str | Callable[[], str], *, window: int = 8, size_bytes: int = 200
    ) -> None:
        self.url: Callable[[], str] = url if callable(url) else lambda: url
        self.window = window
        self.size_bytes = size_bytes
        self.signed = False
        self.pause_s = 0.0
        self.ledger = Ledger()
        self.received = 0
        self.last_receipt = 0.0
        self.clients: dict[SessionKey, RmbClient] = {}
        self.barrier_timeout_s = 60.0
        self._stopping = asyncio.Event()
        self._senders: list[asyncio.Task[None]] = []
        self._receivers: list[asyncio.Task[None]] = []

    def add_sender(
        self,
        twin: Twin,
        destinations: list[SessionKey],
        sid: str | None = None,
        url: str | None = None,
    ) -> None:
        """Start a sender, which uses its destinations in turn. `url` is the URL of its relay."""
        self._senders.append(asyncio.create_task(self._send(twin, sid, destinations, url)))

    def add_receiver(
        self, twin: Twin, sid: str | None = None, url: str | None = None
    ) -> SessionKey:
        """Start a receiver; return its key. `url` is the URL of its relay."""
        self._receivers.append(asyncio.create_task(self._receive(twin, sid, url)))
        return (twin.id, sid)

    def add_pairs(self, twins: list[Twin]) -> None:
        """Make each two successive twins a sender and its receiver."""
        for sender, receiver in zip(twins[::2], twins[1::2], strict=True):
            self.add_sender(sender, [self.add_receiver(receiver)])

    def count(self) -> None:
        """Count one more received message."""
        self.received += 1
        self.last_receipt = time.monotonic()

    async def run_until(self, more: int, timeout_s: float = 60.0) -> None:
        """Wait until `more` further messages have been received."""
        wanted = self.received + more
        deadline = time.monotonic() + timeout_s
        while self.received < wanted:
            self._raise_failures()
            assert time.monotonic() < deadline, (
                f"{self.received} of {wanted} messages within {timeout_s} s"
            )
            await asyncio.sleep(0.005)

    async def finish(self, timeout_s: float = 60) -> None:
        """End the senders, wait until nothing is missing any more, then pass a barrier."""
        self._stopping.set()
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*self._senders)
        deadline = time.monotonic() + timeout_s
        while self.ledger.missing() and time.monotonic() < deadline:
            self._raise_failures()
            await asyncio.sleep(0.02)
        # Receivers pass a barrier, too: otherwise duplicates in flight would be missed.
        for key in {task_key for task_key in self.clients}:
            with contextlib.suppress(*LOST):
                await self.clients[key].barrier(5)

    async def cancel(self) -> None:
        """End all tasks."""
        # A wait whose result has just arrived ignores being cancelled (Python 3.11).
        self._stopping.set()
        tasks = self._senders + self._receivers
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _raise_failures(self) -> None:
        for task in self._senders + self._receivers:
            if task.done() and not task.cancelled():
                task.result()

    async def _send(
        self, twin: Twin, sid: str | None, destinations: list[SessionKey], url: str | None
    ) -> None:
        while not self._stopping.is_set():
            try:
                client = await connect(url or self.url(), twin, sid)
            except LOST:
                await asyncio.sleep(REDIAL_S)
                continue
            page = self.ledger.sender()
            client.on_message = lambda message, page=page: _enter_refusal(page, message)
            try:
                await self._send_on(client, page, destinations)
                await client.close()
            except LOST:
                await asyncio.sleep(REDIAL_S)
            finally:
                await client.abort()

    async def _send_on(
        self, client: RmbClient, page: SenderConnection, destinations: list[SessionKey]
    ) -> None:
        while not self._stopping.is_set():
            for _ in range(self.window):
                destination = destinations[page.sent % len(destinations)]
                uid = f"{page.number} {page.sent}"
                payload = page.next_payload(destination, self.size_bytes)
                message = envelopes.request(
                    client.key, destination, payload, uid=uid, expiration=3600
                )
                if self.signed:
                    challenge.sign(message, client.twin.signing_key)
                await client.send(message)
            count = page.sent
            await client.barrier(self.barrier_timeout_s)
            page.confirm(count)
            if self.pause_s:
                await asyncio.sleep(self.pause_s)

    async def _receive(self, twin: Twin, sid: str | None, url: str | None) -> None:
        while True:
            try:
                client = await connect(url or self.url(), twin, sid)
            except LOST:
                await asyncio.sleep(REDIAL_S)
                continue
            page = self.ledger.receiver(client.key)
            client.on_message = lambda message, page=page: self._take(page, message)
            self.clients[client.key] = client
            try:
                # Read to the last byte: what TCP acknowledged counts as received.
                await client.closed(3600)
            finally:
                await client.abort()
            await asyncio.sleep(REDIAL_S)

    def _take(self, page: ReceiverConnection, message: bytes) -> None:
        page.take(message)
        self.count()


def _enter_refusal(page: SenderConnection, message: bytes) -> None:
    envelope = pb.Envelope.FromString(message)
    if envelope.HasField("error"):
        number, sequence = envelope.uid.split(" ")
        assert int(number) == page.number
        page.refused.add(int(sequence))
        page.refusals[envelope.error.message] = page.refusals.get(envelope.error.message, 0) + 1


@contextlib.asynccontextmanager
async def load(url: str | Callable[[], str], **options: int) -> AsyncIterator[Load]:
    """Run a load during the block; its tasks end with it."""
    running = Load(url, **options)
    try:
        yield running
    finally:
        await running.cancel()
