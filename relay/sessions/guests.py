"""Guests: sessions signed in here although their twin does not list this relay.

Local wins: a message to a guest goes to its stream here and not to its twin's relay. Every worker
therefore mirrors who the guests of all workers are, by message and, in case one was lost, by a
version each second. When a guest's last session is gone, what is left in its stream goes to its
twin's relay after `LINGER_S`. Who sees it leave does that; where nobody was left to, because the
worker was stopped, the others (or the next one to start) find a guest without a session.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import hiredis

from proto.rmb.reasons import MessageReason
from redispipe import resp
from redispipe.pipe import LinkLost
from relay.queues import keys
from relay.queues.entries import entry_payload, has_expired, readable

if TYPE_CHECKING:
    from relay.queues.destination import Destination
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

LINGER_S: Final = 5.0
HEARD_S: Final = 1.0
"""Within this time every worker knows that a guest has left."""
AGAIN_S: Final = 1.0
"""Pause before mail is moved that Redis had no memory to move."""
PAGE: Final = 256
LEASE_S: Final = 60
"""How long nobody else moves a guest's mail on; one that died over it is followed after that."""
ASKED: Final = 500
"""Directory entries asked for in one command."""
CHANNEL: Final = keys.GUESTS.encode()


class Guests:
    """The guests of all workers, as this one knows them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.everywhere: set[str] = set()  # session keys, as text
        self._version: bytes | None = None
        # Whose mail a task of this worker moves on, and whether they left once more meanwhile.
        self._leaving: dict[str, bool] = {}

    def arrived(self, destination: Destination) -> None:
        """A guest signed in here."""
        self._tell(destination.text, "SADD", "+")

    def left(self, destination: Destination) -> None:
        """A guest's session here is over; unless another follows, its mail moves on."""
        under_way = destination.text in self._leaving
        self._leaving[destination.text] = under_way
        if not under_way:  # two would double it
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
                for session in self._worker.sessions:
                    # Redis may have lost the set, or somebody took its worker for dead.
                    if session.guest and session.held:
                        destination = session.destination
                        if destination.text not in self.everywhere:
                            self.arrived(destination)

        self._worker.commit.submit(resp.command("SMEMBERS", keys.GUESTS), answered)

    def _tell(self, text: str, word: str, sign: str) -> None:
        self.news((sign + text).encode())
        for command in (
            (word, keys.GUESTS, text),
            ("INCR", keys.GUESTS_VERSION),
            ("PUBLISH", CHANNEL, sign + text),
        ):
            self._worker.commit.add_extra(resp.command(*command), lambda reply: None)

    async def look_for_left(self) -> None:
        """Finds guests whose session is in no directory: nobody was there to see them leave.

        Raises:
            LinkLost: Redis went away.
        """
        request = self._worker.request
        texts = await request(resp.command("SMEMBERS", keys.GUESTS))
        for first in range(0, len(texts), ASKED):
            part = texts[first : first + ASKED]
            entries = await request(resp.command("HMGET", keys.SESSIONS, *part))
            for text, entry in zip(part, entries, strict=True):
                if entry is None:
                    self.left(self._worker.destination(keys.parse_key(text.decode())))

    async def _leave(self, destination: Destination) -> None:
        try:
            await self._hand_over(destination)
        finally:
            left_again = self._leaving.pop(destination.text)
        if left_again:
            self.left(destination)

    async def _hand_over(self, destination: Destination) -> None:
        await asyncio.sleep(LINGER_S)
        while True:
            try:
                await self._worker.until_usable()
                if await self._is_back(destination) or not await self._lease(destination):
                    return
                await self._move_on(destination)
                # Only now: should this worker die meanwhile, others still see what is to be done.
                self._tell(destination.text, "SREM", "-")
                await asyncio.sleep(HEARD_S)
                if not await self._is_back(destination):
                    await self._move_on(destination)
                await self._worker.request(resp.command("DEL", keys.guest_lease(destination.text)))
                return
            except LinkLost:
                continue
            except hiredis.ReplyError as error:
                log.warning("mail of the guest %s waits: %s", destination.text, error)
                await asyncio.sleep(AGAIN_S)

    async def _is_back(self, destination: Destination) -> bool:
        """Whether the guest has a session again, here or on another worker."""
        command = resp.command("HEXISTS", keys.SESSIONS, destination.text)
        return bool(await self._worker.request(command))

    async def _lease(self, destination: Destination) -> bool:
        """Whether this worker is the one that moves the mail: two would double it."""
        name, boot_id = keys.guest_lease(destination.text), self._worker.boot_id
        taken = resp.command("SET", name, boot_id, "NX", "EX", LEASE_S)
        if await self._worker.request(taken) is not None:
            return True
        return bool(await self._worker.request(resp.command("GET", name)) == boot_id.encode())

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
            moved: asyncio.Future[None] = worker.loop.create_future()

            def removed(reply: Any, moved: asyncio.Future[None] = moved) -> None:
                if moved.done():
                    return
                if isinstance(reply, Exception):
                    moved.set_exception(reply)
                else:
                    moved.set_result(None)

            for entry_id, fields in entries:
                payload = entry_payload(fields)
                envelope = None if payload is None else readable(payload)
                if payload is None or envelope is None:
                    worker.drop(None, None, MessageReason.UNPARSABLE)
                elif has_expired(envelope, entry_id, worker.wall_s()):
                    worker.expire(envelope)
                else:
                    worker.router.federate(destination, payload, None, envelope)
            ids = [entry_id for entry_id, _ in entries]
            worker.commit.add_outgoing(resp.command("XDEL", destination.stream, *ids), removed)
            await moved
