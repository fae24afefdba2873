"""A worker's knowledge of whether a queue has room for one more message, and asking Redis for it.

Three things have bounds: the queue of a session, all queues of a destination twin, and what one
source twin has waiting in all queues. Each group commit asks how full the queues that it writes to
are, and charges their twins (`relay.queues.charging`). What it charges also counts before it is
answered; a message without room for that reason alone waits for the answer.

A full queue gets no more messages and therefore no more answers, and may be empty by now. So a
refusal is never based on an answer older than `FRESH_S`: without a newer one, Redis is asked first
and the message waits for the reply. While messages are refused continuously, the answer is renewed
in the background.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from proto.rmb.reasons import MessageReason
from redispipe import resp
from relay.queues import charging, keys
from relay.queues.batch import FRESH_S, SHARE_FROM, SHARE_FROM_BYTES, SIZE_LOOK_S
from relay.queues.charging import ENTRY_BYTES, FIELDS, Held, TwinBounds
from relay.queues.destination import Share
from relay.queues.held import MESSAGE_BITS, SOURCE_SHARE, is_share_full
from relay.sessions.balances import Balance, Coming, Then

if TYPE_CHECKING:
    from relay.queues.batch import Batch
    from relay.queues.destination import Destination
    from relay.sessions.worker import Worker

NOTICE_SHARE: Final = 16
"""Divisor: errors made by relays get at most this part of a queue, whichever relay they name."""
GIVEN_BACK: Final = 64
"""Maximum number of queues in one request."""
FORGET_S: Final = 60.0
"""Seconds without news of a twin after which what waits of it is forgotten."""
BALANCES: Final = 20_000
"""Maximum number of twins remembered; above it all are forgotten that have nothing in flight."""


class Room:
    """What one worker knows about how full queues are."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        queue = worker.options.queue
        self._half_messages, self._half_bytes = queue.max_messages / 2, queue.max_bytes / 2
        self._asking: dict[tuple[Destination, int], list[Then]] = {}  # callbacks by request
        self._bounds: Mapping[int, TwinBounds] = {}  # of twins with bounds of their own
        self._sources: dict[int, Balance] = {}  # what waits of source twins
        self._twins: dict[int, Balance] = {}  # what waits for destination twins
        self._read: list[str] = []  # queues that were read to their end in this turn
        self._new: set[Destination] = set()  # queues that are being created
        self._coming: tuple[Batch, Coming] | None = None  # of the last batch with noted messages

    def give_back(self, destination: Destination) -> None:
        """End the charges of twins for a queue that was read to its end."""
        if not self._read:
            self._worker.loop.call_soon(self._give_back_all)
        self._read.append(destination.text)

    def _give_back_all(self) -> None:
        """Send the ends of charges; after a restart thousands of queues share a request."""
        worker = self._worker
        kept_s = 2 * worker.options.queue.retention_s
        now = worker.loop.time()
        read, self._read = self._read, []
        for first in range(0, len(read), GIVEN_BACK):
            command = charging.command("release", kept_s, read[first : first + GIVEN_BACK])
            worker.commit.add_extra(command, lambda reply: charging.tell(reply, self.charged, now))

    # --- known state --------------------------------------------------------------------------

    def refusal(
        self, destination: Destination, source: int, size_bytes: int
    ) -> MessageReason | None:
        """Return why a queue has no room for a message of a source twin, as of the last answer."""
        queued, queued_bytes = destination.queued, destination.queued_bytes
        session = destination.session
        if session is not None and session.memory_mode:
            return None
        waits = session is None and not destination.present
        if waits or queued >= SHARE_FROM or queued_bytes >= SHARE_FROM_BYTES:
            reason = self._twin_refusal(destination, source)
            if reason is not None:
                return reason
        coming = destination.coming
        if coming is not None:
            queued_bytes += sum(coming.values())
        if queued < self._half_messages and queued_bytes + size_bytes < self._half_bytes:
            return None
        policy = self._worker.options.queue
        if policy.drop_oldest:
            return None
        if queued >= policy.max_messages or queued_bytes >= policy.max_bytes:
            return MessageReason.QUEUE_FULL
        share = _share(destination, source)
        if coming is not None:
            share += coming.get(source, 0) << MESSAGE_BITS
        if is_share_full(share, SOURCE_SHARE, policy.max_messages, policy.max_bytes):
            return MessageReason.SOURCE_SHARE
        return None

    def notice_refusal(self, destination: Destination, size_bytes: int) -> MessageReason | None:
        """Do the same as `refusal` for an error that another relay made, which has no signature.

        Forged errors get only a small part of the queue, and displace nothing with it.
        """
        session = destination.session
        if session is not None and session.memory_mode:
            return None
        policy = self._worker.options.queue
        share = _share(destination, 0)
        if is_share_full(share, NOTICE_SHARE, policy.max_messages, policy.max_bytes):
            return MessageReason.SOURCE_SHARE
        return self.refusal(destination, 0, size_bytes)

    def _twin_refusal(
        self, destination: Destination, source: int, coming: bool = True
    ) -> MessageReason | None:
        """Return why one of two twins has no room for a message that would wait."""
        sent, received = self._sources.get(source), self._twins.get(destination.key[0])
        if (sent is None or sent.is_roomy()) and (received is None or received.is_roomy()):
            return None
        first = not _share(destination, source)
        if source and sent is not None and sent.is_full(True, first, coming):
            return MessageReason.SOURCE_FULL
        if received is None:
            return None
        if received.is_full(destination.known, not destination.queued, coming):
            return MessageReason.TWIN_FULL
        if (
            source
            and sent is not None
            and received.is_half_full(coming)
            and sent.fills_share(received.bounds, coming)
        ):
            return MessageReason.SOURCE_SHARE
        return None

    def note(self, batch: Batch, destination: Destination, source: int, size_bytes: int) -> None:
        """Count a message of a batch as one that will wait in its queue."""
        if self._coming is None or self._coming[0] is not batch:
            self._coming = batch, Coming(self._new)
            batch.waiters.append(self._coming[1])
        coming = self._coming[1]
        flow = coming.flows.get((source, destination))
        if flow is None:
            twin = self._balance(self._twins, destination.key[0])
            flow = coming.begin(source, destination, self._balance(self._sources, source), twin)
        flow.add(size_bytes + ENTRY_BYTES)

    def _balance(self, balances: dict[int, Balance], twin: int) -> Balance:
        balance = balances.get(twin)
        if balance is None:
            if len(balances) >= BALANCES:
                self.forget()
            balance = balances[twin] = Balance(self._bounds_of(twin))
        return balance

    def holds(self, destination: Destination, source: int, asked: bool = False) -> bool:
        """Check whether a refusal may be based on what is known; an answer that ages is renewed.

        Args:
            asked: whether Redis was asked just now.
        """
        if self._is_pending(destination, source):
            return False
        seen_at = destination.seen_at
        if destination.shares is not None and source in destination.shares:
            seen_at = min(seen_at, destination.shares[source].seen_at)
        sent, received = self._sources.get(source), self._twins.get(destination.key[0])
        shared = received is not None and received.is_half_full()
        for balance in (sent, received):
            if balance is not None and (shared or balance.is_full(False, True)):
                seen_at = min(seen_at, balance.seen_at)
        age_s = self._worker.loop.time() - seen_at
        if age_s >= FRESH_S:
            return asked
        if age_s >= SIZE_LOOK_S and (destination, source) not in self._asking:
            self.ask(destination, source, _nothing)
        return True

    def _is_pending(self, destination: Destination, source: int) -> bool:
        """Check whether there is no room only because of what is in flight."""
        return (
            self._coming is not None
            and not self._coming[0].done
            and self._twin_refusal(destination, source) is not None
            and self._twin_refusal(destination, source, coming=False) is None
        )

    def change(self, bounds: Mapping[int, TwinBounds]) -> None:
        """Apply the bounds of single twins."""
        self._bounds = bounds
        for balances in (self._sources, self._twins):
            for twin, balance in balances.items():
                balance.bounds = self._bounds_of(twin)

    def _bounds_of(self, twin: int) -> TwinBounds:
        return self._bounds.get(twin, self._worker.options.queue.twin)

    def charged(self, name: str, held: Held, now: float) -> None:
        """Record what waits of a twin, by the name of its hash, as of a loop time."""
        balances = self._sources if name.startswith(keys.SENT) else self._twins
        balance = self._balance(balances, _twin_of(name))
        balance.count(held, now)

    def filled_percent(self, name: str, held: Held) -> float:
        """Return the percentage to which a twin's bounds are filled, for the fullest one."""
        return held.filled_percent(self._bounds_of(_twin_of(name)))

    def forget(self) -> None:
        """Forget twins without recent news."""
        oldest = self._worker.loop.time() - FORGET_S
        for balances in (self._sources, self._twins):
            everything = len(balances) >= BALANCES
            for twin, balance in list(balances.items()):
                if balance.idle and (everything or balance.seen_at < oldest):
                    del balances[twin]

    # --- requests -----------------------------------------------------------------------------

    def ask(self, destination: Destination, source: int, then: Then) -> None:
        """Ask Redis for what `refusal` depends on, then call `then`; equal requests share a reply.

        Batches ask as well, but none has a message for a queue that refuses all of them.
        """
        if self._coming is not None and self._is_pending(destination, source):
            self._coming[1].when_done(then)  # that batch is the last one in flight
            return
        waiting = self._asking.get((destination, source))
        if waiting is not None:
            waiting.append(then)
            return
        self._asking[destination, source] = [then]
        now = self._worker.loop.time()
        names = self._names(destination, source)

        def answered(reply: Any) -> None:
            if isinstance(reply, list):
                self._answered(destination, source, reply, now)
            else:  # unknown: messages are queued rather than lost
                destination.queued = destination.queued_bytes = 0
                destination.shares = None
                for name in names:
                    self.charged(name, Held(), now)
            for each in self._asking.pop((destination, source)):
                each()

        asked = [
            resp.command("XLEN", destination.stream),
            resp.command("MEMORY", "USAGE", destination.stream, "SAMPLES", 5),
            resp.command("HGET", keys.share(destination.text), source),
            resp.command("PUBSUB", "NUMSUB", destination.wake),
            resp.command("HEXISTS", keys.known(destination.key[0]), destination.text),
            *(resp.command("HMGET", name, *FIELDS) for name in names),
        ]
        self._worker.commit.submit(
            b"".join([resp.MULTI, *asked, resp.EXEC]), answered, 1 + len(asked)
        )

    def _answered(
        self, destination: Destination, source: int, reply: list[Any], now: float
    ) -> None:
        queued, size_bytes, share, present, known, *twins = reply
        if type(queued) is int:
            destination.queued = queued
        destination.queued_bytes = size_bytes if type(size_bytes) is int else 0
        destination.seen_at = now
        if share is not None or destination.shares:
            if destination.shares is None:
                destination.shares = {}
            destination.shares[source] = Share(int(share or 0), now)
        if isinstance(present, list):
            destination.present = int(present[1]) > 0
        destination.known = known == 1
        for name, counts in zip(self._names(destination, source), twins, strict=True):
            if isinstance(counts, list):
                self.charged(name, Held.parse(counts), now)

    @staticmethod
    def _names(destination: Destination, source: int) -> tuple[str, str]:
        """Return the hashes of both twins of a message."""
        return keys.sent(source), keys.received(destination.key[0])


def _twin_of(name: str) -> int:
    """Return the twin of a hash of what waits; 0 for a name that another program made."""
    number = name.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def _share(destination: Destination, source: int) -> int:
    """Return what a source has in a queue, packed."""
    shares = destination.shares
    return shares[source].packed if shares is not None and source in shares else 0


def _nothing() -> None:
    """Do nothing: the answer is for later messages."""
