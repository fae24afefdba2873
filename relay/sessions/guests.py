"""Guests: sessions signed in here although their twin does not list this relay.

Local delivery takes precedence: a message to a guest goes to its stream here and not to its twin's
relay. Every worker therefore mirrors the guests of all workers, by notifications and, in case one
was lost, by a version read each second. When a guest's last session has ended, the messages left in
its stream go to its twin's relay after `LINGER_S`. The worker that sees the guest leave moves them;
if it was stopped before, the other workers (or the next one to start) find a guest without a
session.

A script moves the messages, and only while the directory has no session of the guest. A session
that signs in claims the directory before it reads the stream, so a message is always in exactly one
of the two places.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hiredis

from proto.rmb.address import from_message
from proto.rmb.reasons import MessageReason
from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from redispipe.errors import LinkLost
from relay.queues import keys
from relay.queues.entries import entry_payload, has_expired, readable
from relay.queues.held import pack
from relay.sessions import scripts
from relay.twins.cache import TwinLookupError

if TYPE_CHECKING:
    from relay.federation.accounts import Account
    from relay.queues.destination import Destination
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

LINGER_S: Final = 5.0
HEARD_S: Final = 1.0
"""Seconds within which every worker knows that a guest has left."""
AGAIN_S: Final = 1.0
"""Seconds until moving messages is retried, after Redis refused it or the outbox was full."""
PAGE: Final = 64
"""Messages moved in one step: 64 MiB at most."""
LEASE_S: Final = 60
"""Seconds for which no other worker moves a guest's messages, even if the first one dies."""
ASKED: Final = 500
"""Directory entries requested by one command."""
CHANNEL: Final = keys.GUESTS.encode()


class Guests:
    """The guests of all workers, as this worker knows them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.everywhere: set[str] = set()  # session keys, as text
        self._version: bytes | None = None
        # Guests whose messages a task of this worker moves, and whether they left again meanwhile.
        self._leaving: dict[str, bool] = {}

    def arrived(self, destination: Destination) -> None:
        """Record that a guest signed in here."""
        self._tell(destination.text, "SADD", "+")

    def left(self, destination: Destination) -> None:
        """Record that a guest's session ended; its messages move on unless another one follows."""
        under_way = destination.text in self._leaving
        self._leaving[destination.text] = under_way
        if not under_way:  # else the running task repeats when it is done
            self._worker.spawn(self._leave(destination))

    def at_home(self, session: Session) -> None:
        """Record that a guest's twin lists this relay now, so its messages stay here."""
        session.guest = False
        self._tell(session.destination.text, "SREM", "-")

    def news(self, payload: bytes) -> None:
        """Handle a notification about a guest: ``+key`` or ``-key``."""
        text = payload[1:].decode()
        if payload[:1] == b"+":
            self.everywhere.add(text)
        else:
            self.everywhere.discard(text)
        self._worker.router.generation += 1

    def version_seen(self, version: bytes | None) -> None:
        """Handle the present version: read the mirror again if it is new."""
        if version == self._version:
            return

        def answered(reply: Any) -> None:
            if isinstance(reply, list):
                self._version = version
                self.everywhere = {text.decode() for text in reply}
                self._worker.router.generation += 1
                for session in self._worker.sessions:
                    # Redis may have lost the set, or another worker took this one for dead.
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
        """Find guests without a session in the directory, whose departure no worker has handled.

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
                if await self._move_on(destination):
                    # Only now: if this worker dies before, others still find the guest.
                    self._tell(destination.text, "SREM", "-")
                    await asyncio.sleep(HEARD_S)
                    await self._move_on(destination)
                await self._worker.request(resp.command("DEL", keys.guest_lease(destination.text)))
                return
            except LinkLost:
                continue
            except hiredis.ReplyError as error:
                log.warning("messages of the guest %s wait: %s", destination.text, error)
                await asyncio.sleep(AGAIN_S)

    async def _is_back(self, destination: Destination) -> bool:
        """Check whether the guest has a session again, here or on another worker."""
        command = resp.command("HEXISTS", keys.SESSIONS, destination.text)
        return bool(await self._worker.request(command))

    async def _lease(self, destination: Destination) -> bool:
        """Take the lease to move the guest's messages, and return whether this worker has it.

        Operators cannot change the queue meanwhile.
        """
        name, boot_id = keys.guest_lease(destination.text), self._worker.boot_id
        taken = resp.command("SET", name, boot_id, "NX", "EX", LEASE_S)
        if await self._worker.request(taken) is not None:
            return True
        return bool(await self._worker.request(resp.command("GET", name)) == boot_id.encode())

    async def _move_on(self, destination: Destination) -> bool:
        """Move the messages left in the stream to the outbox; return False if the guest is back."""
        worker, shard = self._worker, destination.key[0] % keys.OUTBOX_SHARDS
        while True:
            entries = await worker.request(
                resp.command("XRANGE", destination.stream, "-", "+", "COUNT", PAGE)
            )
            if not entries:
                return True
            with contextlib.suppress(TwinLookupError):  # it counts for no account of its own then
                await worker.twins.look_up(destination.key[0])
            account = worker.router.account(destination.key[0])
            mail = [_Mail.of(entry_id, fields, worker.wall_s()) for entry_id, fields in entries]
            fitting = list(itertools.takewhile(partial(_fits, account), mail))
            reply = await worker.request(
                scripts.leave(
                    destination.stream,
                    destination.text,
                    shard,
                    account,
                    [part for each in fitting for part in each.arguments()],
                )
            )
            if reply is None:
                return False
            total, drained, answers = reply
            if not drained:
                worker.router.start_drainer(shard)
            for each, answer in zip(fitting, answers, strict=True):
                if answer is not None:  # else the entry did not exist any more
                    self._moved(each, account, total, answer)
            if len(fitting) < len(mail):  # the outbox is full: accepted messages are kept
                account.look(worker.loop.time(), worker.commit.submit)
                await asyncio.sleep(AGAIN_S)

    def _moved(self, mail: _Mail, account: Account, total: int, answer: Any) -> None:
        """Record what became of an entry, by the reply of `leave.lua`."""
        worker = self._worker
        if mail.reason is MessageReason.UNPARSABLE:
            worker.drop(None, None, mail.reason)
        elif mail.reason is not None:
            worker.refuse_absent(mail.envelope, mail.reason)
        else:
            entry_id, held = answer
            account.total_seen(worker.loop.time(), total)
            account.source_seen(mail.envelope.source.twin, worker.loop.time(), held)
            worker.metrics.federated += 1
            worker.recorder.federated(None, mail.envelope, entry_id, mail.size_bytes)


class _Mail(NamedTuple):
    """An entry of a guest's stream."""

    id: bytes
    envelope: Envelope
    size_bytes: int
    reason: MessageReason | None
    """Why it is only removed from the stream; None if it goes to the outbox."""

    @classmethod
    def of(cls, entry_id: bytes, fields: list[bytes], now_s: float) -> _Mail:
        payload = entry_payload(fields)
        envelope = None if payload is None else readable(payload)
        if payload is None or envelope is None:
            return cls(entry_id, Envelope(), 0, MessageReason.UNPARSABLE)
        late = has_expired(envelope, entry_id, now_s)
        return cls(entry_id, envelope, len(payload), MessageReason.EXPIRED if late else None)

    def arguments(self) -> tuple[bytes, str, int, int]:
        """Return its arguments for `leave.lua`."""
        key = from_message(self.envelope.source)
        packed = 0 if self.reason is not None else pack(1, self.size_bytes)
        return self.id, keys.key_text(key) if key[0] else "", key[0], packed


def _fits(account: Account, mail: _Mail) -> bool:
    """Check whether the outbox has room for an entry, or does not get it."""
    return mail.reason is not None or account.takes(mail.envelope.source.twin)
