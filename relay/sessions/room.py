"""Whether a queue takes one more message, as far as one worker knows, and asking where it does not.

Each group commit asks how full the queues are that it writes to. A queue that refuses gets no more
messages and so no more answers, and what was full once may be empty by now: a refusal is never
based on an answer older than `FRESH_S`. Where there is none, Redis is asked first, and the message
waits for that. While somebody is refused all the time the answer is renewed beside that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from proto.rmb.reasons import MessageReason
from redispipe import resp
from relay.queues import keys
from relay.queues.batch import FRESH_S, SIZE_LOOK_S
from relay.queues.destination import Share
from relay.queues.held import MESSAGE_BITS, SOURCE_SHARE, is_share_full

if TYPE_CHECKING:
    from relay.queues.destination import Destination
    from relay.sessions.worker import Worker

NOTICE_SHARE: Final = 16
"""This part of a queue at most is errors that relays made, whoever says so."""

Then = Callable[[], object]


class Room:
    """What one worker knows about how full queues are."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        queue = worker.options.queue
        self._half_messages, self._half_bytes = queue.max_messages / 2, queue.max_bytes / 2
        self._asking: dict[tuple[Destination, int], list[Then]] = {}  # and who waits for it

    def refusal(
        self, destination: Destination, source: int, size_bytes: int
    ) -> MessageReason | None:
        """Why a queue does not take one more message of a source twin, as of the last answer."""
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
            return MessageReason.QUEUE_FULL
        share = 0
        if destination.shares is not None and source in destination.shares:
            share = destination.shares[source].packed
        if coming is not None:
            share += coming.get(source, 0) << MESSAGE_BITS
        if is_share_full(share, SOURCE_SHARE, policy.max_messages, policy.max_bytes):
            return MessageReason.SOURCE_SHARE
        return None

    def notice_refusal(self, destination: Destination, size_bytes: int) -> MessageReason | None:
        """As `refusal`, for an error that another relay made: nobody has signed it.

        Whoever makes them up gets a small part of the queue, and displaces nothing with it.
        """
        session = destination.session
        if session is not None and session.memory_mode:
            return None
        policy = self._worker.options.queue
        share = (
            destination.shares[0].packed if destination.shares and 0 in destination.shares else 0
        )
        if is_share_full(share, NOTICE_SHARE, policy.max_messages, policy.max_bytes):
            return MessageReason.SOURCE_SHARE
        return self.refusal(destination, 0, size_bytes)

    def holds(self, destination: Destination, source: int) -> bool:
        """Whether a refusal may be based on what is known; an answer that ages is renewed."""
        seen_at = destination.seen_at
        if destination.shares is not None and source in destination.shares:
            seen_at = min(seen_at, destination.shares[source].seen_at)
        age_s = self._worker.loop.time() - seen_at
        if age_s >= FRESH_S:
            return False
        if age_s >= SIZE_LOOK_S and (destination, source) not in self._asking:
            self.ask(destination, source, _nothing)
        return True

    def ask(self, destination: Destination, source: int, then: Then) -> None:
        """Asks how full a queue is, then tells; whoever asks the same meanwhile shares the answer.

        Batches ask as well, but none has a message for a queue that refuses all.
        """
        waiting = self._asking.get((destination, source))
        if waiting is not None:
            waiting.append(then)
            return
        self._asking[destination, source] = [then]
        now = self._worker.loop.time()

        def answered(reply: Any) -> None:
            if isinstance(reply, list):
                queued, size_bytes, share = reply
                if type(queued) is int:
                    destination.queued = queued
                destination.queued_bytes = size_bytes if type(size_bytes) is int else 0
                destination.seen_at = now
                if destination.shares:
                    destination.shares[source] = Share(int(share or 0), now)
            else:  # nobody can tell: messages are queued rather than lost
                destination.queued = destination.queued_bytes = 0
                destination.shares = None
            for each in self._asking.pop((destination, source)):
                each()

        asked = [
            resp.command("XLEN", destination.stream),
            resp.command("MEMORY", "USAGE", destination.stream, "SAMPLES", 5),
            resp.command("HGET", keys.share(destination.text), source),
        ]
        self._worker.commit.submit(
            b"".join([resp.MULTI, *asked, resp.EXEC]), answered, 1 + len(asked)
        )


def _nothing() -> None:
    """The answer is for those who come later."""
