"""A worker's knowledge of where messages go, and their ways out: a queue or the outbox.

`proto/rmb/routing.py` makes the decision. This module provides its facts (which sessions are
connected, the twins, the guests, how full queues are), fetches missing ones, and remembers
decisions that hold for every message to a key until something changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from proto.federation.domains import reachable
from proto.limits.addresses import BannedNetworks
from proto.rmb.address import from_message
from proto.rmb.reasons import MessageReason
from proto.rmb.routing import Facts, Route, Step, Twin, route
from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from relay.federation.accounts import Account, Accounts, Charge
from relay.federation.outbox import account_of, put_command
from relay.queues import keys
from relay.queues.destination import Destination
from relay.twins.cache import MISSING, TwinLookupError

if TYPE_CHECKING:
    from relay.queues.batch import Batch
    from relay.sessions.sender import Sender
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)


class Router:
    """Facts and decisions about session keys."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.generation = 0  # decisions remembered for another generation are made again
        self.banned: dict[int, str] = {}  # twin -> the operator's reason
        self.banned_addresses = BannedNetworks()
        self.start_drainer: Callable[[int], None] = lambda shard: None  # for a shard without one
        self._accounts = Accounts(worker.options.outbox)
        self._twin_accounts: dict[int, Account] = {}  # destination twin -> its account
        self._accounts_generation = -1
        self._looks: dict[int, list[Callable[[bool], None]]] = {}  # twin -> callbacks

    def facts(
        self, destination: Destination, fail_fast: bool, present: bool | None, failed: bool = False
    ) -> Facts:
        """Return what is known of where messages to a key go.

        Args:
            failed: whether the look-up of its twin has failed.
        """
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
        """Return where one message to a key goes, as far as is known now."""
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
        """Look up a twin, then call `then` with whether that failed; equal look-ups are merged."""
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
        """Ask Redis whether a worker is subscribed to a key's wakes, as its holder is."""

        def answered(reply: Any) -> None:
            if isinstance(reply, list) and len(reply) == 2:
                then(int(reply[1]) > 0)
            else:
                then(True)  # unknown: the message is queued rather than lost

        self._worker.commit.submit(resp.command("PUBSUB", "NUMSUB", destination.wake), answered)

    def federate(
        self,
        destination: Destination,
        payload: bytes,
        sender: Sender | None,
        envelope: Envelope,
        asked: bool = False,
    ) -> Batch | None:
        """Put a message into the outbox for partner relays, inside the group commit.

        Args:
            asked: whether the room was checked just now. Otherwise a message with a sender must not
                be passed in if `outbox_holds` returns False.
        """
        worker = self._worker
        commit = worker.commit
        twin = destination.key[0]
        # Messages left by a guest have a source as well; those made by the relay itself have none.
        key = from_message(envelope.source) if sender is None else sender.key
        source, origin = key[0], keys.key_text(key) if key[0] else ""
        account = self.account(twin)
        if not account.takes(source):
            now = worker.loop.time()
            if sender is None and not asked and not account.holds(source, now, commit.submit):
                again = partial(self.federate, destination, payload, None, envelope, asked=True)
                account.look(now, commit.submit, again)
                return None
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

    def outbox_holds(self, twin: int, source: int) -> bool:
        """Check whether the state of the outbox is usable: it has room, or a refusal is allowed."""
        account = self.account(twin)
        if account.takes(source):
            return True
        return account.holds(source, self._worker.loop.time(), self._worker.commit.submit)

    def ask_outbox(self, twin: int, then: Callable[[], None]) -> None:
        """Ask Redis whether the outbox has room for messages to a twin, then call `then`."""
        worker = self._worker
        self.account(twin).look(worker.loop.time(), worker.commit.submit, then)

    def account(self, twin: int) -> Account:
        """Return the account of a destination twin; that of no relays if the twin is unknown."""
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
        """Send a notice to a sender wherever it is: to its socket here, else by its stream."""
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
