"""Guests: sessions signed in here although their twin does not list this relay.

Local wins: a message to a guest goes to its stream here and not to its twin's relay. Every worker
therefore mirrors who the guests of all workers are, by message and, in case one was lost, by a
version each second. When a guest's last session is gone, what is left in its stream goes to its
twin's relay after `LINGER_S`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from proto.rmb.types_pb2 import Envelope
from relay.queues import keys, resp
from relay.queues.pipe import LinkLost

if TYPE_CHECKING:
    from relay.queues.destination import Destination
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

LINGER_S: Final = 5.0
PAGE: Final = 256
CHANNEL: Final = keys.GUESTS.encode()


class Guests:
    """The guests of all workers, as this one knows them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.everywhere: set[str] = set()  # session keys, as text
        self._version: bytes | None = None

    def arrived(self, destination: Destination) -> None:
        """A guest signed in here."""
        self._tell(destination.text, "SADD", "+")

    def left(self, destination: Destination) -> None:
        """A guest's session here is over; unless another follows, its mail moves on."""
        self._worker.spawn(self._leave(destination))

    def news(self, payload: bytes) -> None:
        """Another worker tells of a guest: ``+key`` or ``-key``."""
        text = payload[1:].decode()
        if payload[:1] == b"+":
            self.everywhere.add(text)
        else:
            self.everywhere.discard(text)
        self._worker.router.generation += 1

    def version_seen(self, version: bytes | None) -> None:
        """The version as of now: a new one has the mirror read again."""
        if version == self._version:
            return

        def answered(reply: Any) -> None:
            if isinstance(reply, list):
                self._version = version
                self.everywhere = {text.decode() for text in reply}
                self._worker.router.generation += 1

        self._worker.commit.submit(resp.command("SMEMBERS", keys.GUESTS), answered)

    def _tell(self, text: str, word: str, sign: str) -> None:
        self.news((sign + text).encode())
        for command in (
            (word, keys.GUESTS, text),
            ("INCR", keys.GUESTS_VERSION),
            ("PUBLISH", CHANNEL, sign + text),
        ):
            self._worker.commit.add_extra(resp.command(*command), lambda reply: None)

    async def _leave(self, destination: Destination) -> None:
        await asyncio.sleep(LINGER_S)
        worker = self._worker
        while True:
            try:
                await worker.until_usable()
                if await worker.request(resp.command("HEXISTS", keys.SESSIONS, destination.text)):
                    return  # it is back, here or on another worker
                self._tell(destination.text, "SREM", "-")
                await self._move_on(destination)
                return
            except LinkLost:
                continue

    async def _move_on(self, destination: Destination) -> None:
        """Hands what is left in the stream to the outbox, in the order of its ids.

        Each page's XADDs and XDELs are in one MULTI: a message is in one of the two places.
        """
        worker = self._worker
        while True:
            entries = await worker.request(
                resp.command("XRANGE", destination.stream, "-", "+", "COUNT", PAGE)
            )
            if not entries:
                return
            moved: asyncio.Future[bool] = worker.loop.create_future()

            def removed(reply: Any, moved: asyncio.Future[bool] = moved) -> None:
                if not moved.done():
                    moved.set_result(not isinstance(reply, Exception))

            for _, fields in entries:
                payload = fields[1]
                worker.router.federate(destination, payload, None, Envelope.FromString(payload))
            ids = [entry_id for entry_id, _ in entries]
            worker.commit.add_outgoing(resp.command("XDEL", destination.stream, *ids), removed)
            if not await moved:
                log.error("mail of the guest %s could not be moved on", destination.text)
                return
