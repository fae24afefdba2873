"""What a worker knows about where messages go, and the two ways out of it: a queue or the outbox.

The decision itself is `proto/rmb/routing.py`; here are its facts (who is connected, the twins, the
guests, how full queues are), fetching those that are missing, and remembering decisions that hold
for every message to a key until something changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from proto.federation.domains import reachable
from proto.rmb.address import from_message
from proto.rmb.reasons import MessageReason
from proto.rmb.routing import Facts, Route, Step, Twin, route
from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from relay.federation.accounts import Account, Accounts, Charge
from relay.federation.outbox import account_of, put_command
from relay.queues import keys
from relay.queues.batch import SIZE_LOOK_S
from relay.queues.destination import Destination
from relay.queues.held import MESSAGE_BITS, SOURCE_SHARE, is_share_full
from relay.twins.cache import MISSING, TwinLookupError

if TYPE_CHECKING:
    from relay.queues.batch import Batch
    from relay.sessions.sender import Sender
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

NOTICE_SHARE: Final = 16
"""This part of a queue at most is errors that relays made, whoever says so."""


class Router:
    """Facts and decisions about session keys."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.generation = 0  # decisions remembered under another number are made again
        self.banned: dict[int, str] = {}  # twin -> the operator's reason
        self.start_drainer: Callable[[int], None] = lambda shard: None  # of a shard without one
        queue = worker.options.queue
        self._half_messages, self._half_bytes = queue.max_messages / 2, queue.max_bytes / 2
        self._accounts = Accounts(worker.options.outbox)
        self._twin_accounts: dict[int, Account] = {}  # destination twin -> its account
        self._accounts_generation = -1
        self._looks: dict[int, list[Callable[[bool], None]]] = {}  # twin -> who waits for it

    def facts(
        self, destination: Destination, fail_fast: bool, present: bool | None, failed: bool = False
    ) -> Facts:
        """What is known about where messages to a key go; `failed`, its twin's look-up has."""
        number = destination.key[0]
        if destination.session is not None:
            return Facts(held_here=True)
        if destination.text in self._worker.guests.everywhere:
            return Facts(guest=True)
        record = self._worker.twins.get(number)
        if record is MISSING:
            return Facts(known=failed, failed=failed)
        twin = None if record is None else Twin(record.relays, number in self.banned)
        return Facts(known=True, twin=twin, fail_fast=fail_fast, present=present)

    def decide(
        self, destination: Destination, fail_fast: bool, present: bool | None, failed: bool = False
    ) -> Route:
        """Where one message to a key goes, as far as is known now."""
        if not fail_fast and destination.generation == self.generation:
            assert destination.decided is not None
            return destination.decided
        facts = self.facts(destination, fail_fast, present, failed)
        decision = route(facts, self._worker.domains)
        if not fail_fast and not facts.held_here and facts.twin is not None:
            destination.decided = decision
            destination.generation = self.generation
        return decision

    def look_up(self, twin: int, then: Callable[[bool], None]) -> None:
        """Fetches a twin, then tells whether that failed; concurrent look-ups of one are one."""
        waiting = self._looks.get(twin)
        if waiting is not None:
            waiting.append(then)
            return
        self._looks[twin] = [then]
        self._worker.spawn(self._look_up(twin))

    async def _look_up(self, twin: int) -> None:
        failed = False
        try:
            await self._worker.twins.look_up(twin)
        except TwinLookupError as error:
            log.debug("twin %d cannot be looked up: %s", twin, error)
            failed = True
        finally:
            for then in self._looks.pop(twin, ()):
                then(failed)

    def ask_presence(self, destination: Destination, then: Callable[[bool], None]) -> None:
        """Asks whether any worker is subscribed to a key's wakes, which its holder is."""

        def answered(reply: Any) -> None:
            if isinstance(reply, list) and len(reply) == 2:
                then(int(reply[1]) > 0)
            else:
                then(True)  # cannot tell: the message is queued rather than lost

        self._worker.commit.submit(resp.command("PUBSUB", "NUMSUB", destination.wake), answered)

    def fullness(
        self, destination: Destination, source: int, size_bytes: int
    ) -> MessageReason | None:
        """Whether a queue takes one more message of a source twin, as of the last answer."""
        queued, queued_bytes = destination.queued, destination.queued_bytes
        coming = destination.coming
        if coming is not None:
            queued_bytes += sum(coming.values())
        if queued < self._half_messages and queued_bytes + size_bytes < self._half_bytes:
            return None
        if destination.session is not None and destination.session.memory_mode:
            return None
        policy = self._worker.options.queue
        if policy.drop_oldest:
            return None
        if queued >= policy.max_messages or queued_bytes >= policy.max_bytes:
            self._ask_room(destination, source)
            return MessageReason.QUEUE_FULL
        share = destination.shares.get(source, 0) if destination.shares else 0
        if coming is not None:
            share += coming.get(source, 0) << MESSAGE_BITS
        if is_share_full(share, SOURCE_SHARE, policy.max_messages, policy.max_bytes):
            self._ask_room(destination, source)
            return MessageReason.SOURCE_SHARE
        return None

    def notice_fullness(self, destination: Destination, size_bytes: int) -> MessageReason | None:
        """As `fullness`, for an error that another relay made: nobody has signed it.

        Whoever makes them up gets a small part of the queue, and displaces nothing with it.
        """
        session = destination.session
        if session is not None and session.memory_mode:
            return None
        policy = self._worker.options.queue
        share = destination.shares.get(0, 0) if destination.shares else 0
        if is_share_full(share, NOTICE_SHARE, policy.max_messages, policy.max_bytes):
            self._ask_room(destination, 0)
            return MessageReason.SOURCE_SHARE
        return self.fullness(destination, 0, size_bytes)

    def _ask_room(self, destination: Destination, source: int) -> None:
        """Batches ask how full a queue is, but none has a message for one that is refused."""
        now = self._worker.loop.time()
        if now < destination.bytes_at:
            return
        destination.bytes_at = now + SIZE_LOOK_S

        def answered(reply: Any) -> None:
            if not isinstance(reply, list):
                return
            queued, size_bytes, share = reply
            if type(queued) is int:
                destination.queued = queued
            destination.queued_bytes = size_bytes if type(size_bytes) is int else 0
            if destination.shares:
                destination.shares[source] = int(share or 0)

        asked = [
            resp.command("XLEN", destination.stream),
            resp.command("MEMORY", "USAGE", destination.stream, "SAMPLES", 5),
            resp.command("HGET", keys.share(destination.text), source),
        ]
        self._worker.commit.submit(
            b"".join([resp.MULTI, *asked, resp.EXEC]), answered, 1 + len(asked)
        )

    def federate(
        self, destination: Destination, payload: bytes, sender: Sender | None, envelope: Envelope
    ) -> Batch | None:
        """Hands a message to the outbox for other relays, inside the group commit."""
        worker = self._worker
        commit = worker.commit
        twin = destination.key[0]
        # Mail that a guest left has a sender as well, what the relay itself made has none.
        key = from_message(envelope.source) if sender is None else sender.key
        source, origin = key[0], keys.key_text(key) if key[0] else ""
        account = self.account(twin)
        if not account.takes(source):
            account.look(worker.loop.time(), commit.submit)
            if sender is not None:
                sender.refuse(envelope, MessageReason.OUTBOX_FULL)
            else:
                worker.refuse_absent(envelope, MessageReason.OUTBOX_FULL)
            return None

        def stored(reply: Any) -> None:
            if isinstance(reply, Exception):
                worker.refused((destination, payload, sender))
                return
            worker.metrics.federated += 1
            if worker.recording:
                told = Envelope.FromString(payload)
                worker.recorder.federated(sender, told, reply, size_bytes)

        if sender is not None:
            commit.close_full()
        size_bytes = len(payload)
        command = put_command(twin, payload, origin, account.part)
        batch = commit.add_outgoing(command, stored, size_bytes)
        if batch.charge is None:
            batch.charge = Charge(self.start_drainer)
        batch.charge.add(account, source, twin % keys.OUTBOX_SHARDS, size_bytes)
        return batch

    def account(self, twin: int) -> Account:
        """The account of a destination twin; one of no relays where the twin is not known now."""
        if self._accounts_generation != self.generation:
            self._accounts_generation = self.generation
            self._twin_accounts.clear()
        account = self._twin_accounts.get(twin)
        if account is None:
            record = self._worker.twins.get(twin)
            relays = () if record is MISSING or record is None else reachable(record.relays)
            account = self._accounts.get(account_of(relays))
            if relays:
                self._twin_accounts[twin] = account
        return account

    def send_notice(self, destination: Destination, notice: bytes, failed: bool = False) -> None:
        """Brings a notice to a sender wherever it is: to its socket here, else by its stream."""
        session = destination.session
        if session is not None and session.sender is not None:
            session.sender.notify(notice)
            return
        step = self.decide(destination, False, None, failed).step
        if step is Step.LOOK_UP:
            number = destination.key[0]
            self.look_up(number, lambda failed: self.send_notice(destination, notice, failed))
        elif step is Step.QUEUE:
            self._worker.commit.add(destination, notice, None).mixed = True
        elif step is Step.FEDERATE:
            self.federate(destination, notice, None, Envelope.FromString(notice))
