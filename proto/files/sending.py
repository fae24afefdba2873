"""State machine of the sender of a file: its next request, and the effects of answers.

    NEGOTIATING --status--> SENDING --all acknowledged--> CLOSING --done--> DONE
         ^                     |                             |
         '---- no answer, unknown upload, chunks missing ----'        (any) --> FAILED
         '---empty answer--> PLAIN

The owner makes the requests that `next_request` returns, several at a time, and reports the result
of each with `answered` or `failed`. If it returns None, there is nothing to do until a request ends
or the time of `next_timer` is reached. Times are those of any clock in seconds.

A chunk without an answer is sent again. If nothing at all was answered in the meantime, the
receiver is unavailable. The sender then sends no data, which would only wait in a relay, but a
small offer from time to time, whose answer says where to continue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from proto.files.bounds import (
    CHUNK_BYTES,
    FIRST_PAUSE_S,
    FIRST_TIMEOUT_S,
    MAX_PAUSE_S,
    OFFER_TIMEOUT_S,
    SENDER_WINDOW_CHUNKS,
    SHORTEST_OFFER_S,
    STALL_S,
)
from proto.files.errors import FileCode, StatusError
from proto.files.messages import Offer, State, Status, parse_status
from proto.files.pace import Pace
from proto.limits.backoff import Backoff
from proto.rmb.errors import CODE_OTHER

MAX_RESTARTS: Final = 1
"""Number of times that a file is sent again because its checksum did not match at the receiver."""

_PAUSES: Final = Backoff(FIRST_PAUSE_S, MAX_PAUSE_S)
_FINAL_CODES: Final = frozenset(
    (
        *(FileCode.BAD_REQUEST, FileCode.NOT_ALLOWED, FileCode.EXISTS, FileCode.TOO_LARGE),
        *(FileCode.CHECKSUM, FileCode.FAILED, FileCode.NO_SPACE),
        *(103, 104, 105),  # the receiver does not know this twin or its key: see proto.rmb.errors
    )
)


class Phase(Enum):
    """Progress of the sender."""

    NEGOTIATING = "negotiating"
    SENDING = "sending"
    CLOSING = "closing"
    DONE = "done"
    FAILED = "failed"
    PLAIN = "plain"
    """The receiver accepts the file, but answers as the reference peer does. The owner sends the
    chunks one after another, with the uid of the offer and no tags."""


class Ask(Enum):
    """Kind of request to make."""

    NEGOTIATE = "file.negotiate"
    WRITE = "file.write"
    CLOSE = "file.close"


@dataclass(frozen=True, slots=True)
class Next:
    """The next request to make."""

    ask: Ask
    timeout_s: float
    """Seconds to wait for its answer before reporting it as failed."""
    index: int = 0
    """Number of the chunk to write."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason for which a request failed."""

    message: str
    code: int | None = None
    """Code of the error that the receiver answered with, or 103 if there is no such twin; None if
    there was no such error."""
    final: bool = False
    """Whether the owner considers a retry pointless."""


@dataclass(slots=True)
class _Flight:
    sent_at: float
    again: bool  # it was sent before, so an answer may belong to the earlier request


class Sender:
    """Sender of one upload.

    Args:
        offer: offer of the file.
        now: current time.
        window: maximum number of chunks in flight.
        stall_s: seconds without any progress after which the upload fails.

    Attributes:
        phase: progress of the upload.
        id: id of the upload, once the receiver has assigned it.
        name: name of the file at the receiver, when the upload is done.
        error: reason for which it failed.
        resumed_chunks: number of chunks that the receiver had when it first answered.
        repeated_chunks: number of chunks that were sent again.
    """

    def __init__(
        self,
        offer: Offer,
        now: float,
        window: int = SENDER_WINDOW_CHUNKS,
        stall_s: float = STALL_S,
    ) -> None:
        self.offer = offer
        self.phase = Phase.NEGOTIATING
        self.id = ""
        self.name = ""
        self.error: Failure | None = None
        self.resumed_chunks: int | None = None
        self.repeated_chunks = 0
        self._pace = Pace(window)
        self._stall_s = stall_s
        self._heard_at = now  # when the receiver last answered
        self._progress_at = now  # when more chunks were acknowledged than ever before
        self._best = -1  # most chunks ever acknowledged
        self._tries = 0  # tries since the last progress
        self._restarts = 0
        self._ready_at = now  # time before which nothing is sent
        self._asked_at: float | None = None  # when a pending negotiate or close was sent
        self._have = 0  # all chunks before this one are acknowledged
        self._beyond: set[int] = set()  # acknowledged, after a missing one
        self._ahead = 1  # number of chunks from `_have` on that the receiver accepts
        self._flying: dict[int, _Flight] = {}
        self._sent: set[int] = set()  # chunks sent before that may have to be sent again

    @property
    def over(self) -> bool:
        """Whether there are no more requests to make."""
        return self.phase in (Phase.DONE, Phase.FAILED, Phase.PLAIN)

    @property
    def acknowledged_bytes(self) -> int:
        """Number of bytes of the file that the receiver has."""
        if self.phase is Phase.DONE:
            return self.offer.size_bytes
        first = min(self._have * CHUNK_BYTES, self.offer.size_bytes)
        return first + sum(self.offer.chunk_size(index) for index in self._beyond)

    def next_request(self, now: float) -> Next | None:
        """Return the request to make now; None if there is nothing to do at the moment."""
        if self.over or now < self._ready_at:
            return None
        if self.phase is Phase.SENDING:
            index = self._next_chunk()
            if index is None:
                return None
            again = index in self._sent
            self.repeated_chunks += again
            self._sent.add(index)
            self._flying[index] = _Flight(now, again)
            return Next(Ask.WRITE, self._pace.timeout_s, index)
        if self._asked_at is not None:
            return None
        self._asked_at = now
        # An answer that takes longer is lost, or the next try gets it.
        if self.phase is Phase.CLOSING:
            return Next(Ask.CLOSE, min(self._pace.timeout_s, FIRST_TIMEOUT_S))
        left_s = self._progress_at + self._stall_s - now
        longest_s = max(left_s, SHORTEST_OFFER_S)
        return Next(Ask.NEGOTIATE, min(self._pace.timeout_s, OFFER_TIMEOUT_S, longest_s))

    def next_timer(self) -> float | None:
        """Return when to call `next_request` again; None to wait until a request has ended."""
        if self.over:
            return None
        if self.phase is Phase.SENDING:
            return self._ready_at if self._next_chunk() is not None else None
        return self._ready_at if self._asked_at is None else None

    def answered(self, request: Next, payload: bytes, now: float) -> None:
        """Process the successful answer to a request."""
        if self.over:
            return
        self._heard_at = now
        if request.ask is Ask.WRITE:
            flight = self._flying.pop(request.index, None)
            took_s = None if flight is None or flight.again else now - flight.sent_at
            self._pace.answered(took_s)
            self._acknowledge(request.index, now)
            return
        self._asked_at = None
        if not payload and not self.id:
            self.phase = Phase.PLAIN
            return
        try:
            status = parse_status(payload, self.offer.chunks)
        except StatusError as error:
            self._fail(Failure(str(error)))
            return
        self._take(status, now)

    def failed(self, request: Next, failure: Failure, now: float) -> None:
        """Record that a request failed or was not answered in time."""
        if self.over:
            return
        sent_at, self._asked_at = self._asked_at, None
        if request.ask is Ask.WRITE:
            self._asked_at = sent_at
            flight = self._flying.pop(request.index, None)
            sent_at = None if flight is None else flight.sent_at
        if failure.code is not None:
            self._heard_at = now
        restart = failure.code == FileCode.CHECKSUM and self._restarts < MAX_RESTARTS
        hopeless = failure.final or (failure.code in _FINAL_CODES and not restart)
        # This is the code of all other errors. It comes from a peer that accepts no uploads or,
        # once an upload is in progress, from one that is overloaded.
        if failure.code == CODE_OTHER and not self.id:
            hopeless = True
            message = f"no uploads are taken there: {failure.message}"
            failure = replace(failure, message=message)
        if hopeless or self._stalled(now):
            self._fail(failure)
        elif restart:
            self._restarts += 1
            self._best = -1  # start again from the first chunk
            self._offer_again(now)
        elif failure.code in (FileCode.UNKNOWN, FileCode.AHEAD):
            # It has fewer chunks than it acknowledged: it was killed, and kept only those without a
            # gap.
            self._offer_again(now)
        else:
            if sent_at is not None:
                self._pace.lost(sent_at, now)
            if request.ask is not Ask.WRITE or sent_at is None or self._heard_at <= sent_at:
                self._offer_again(now)
            elif failure.code is not None:
                # The receiver is reachable but overloaded.
                self._ready_at = max(self._ready_at, now + FIRST_PAUSE_S)

    def stop(self, message: str) -> None:
        """End the upload, because the file cannot be read any more or the upload was cancelled."""
        if not self.over:
            self._fail(Failure(message))

    # Effects of answers.

    def _take(self, status: Status, now: float) -> None:
        self.id = status.id
        self._pace.heard()
        if self.resumed_chunks is None:
            self.resumed_chunks = status.have + len(status.beyond)
        if status.state is State.DONE:
            self.phase, self.name = Phase.DONE, status.name
            return
        # It may have fewer chunks than it acknowledged: its disk may have lost some.
        self._have, self._beyond = status.have, set(status.beyond)
        self._ahead = status.window
        self.phase = Phase.SENDING
        if not self._progressed(now):
            self._tries += 1
            self._ready_at = now + _pause_s(self._tries)
            if self._stalled(now):
                self._fail(Failure("the receiver takes nothing more"))
                return
        self._close_when_complete()

    def _acknowledge(self, index: int, now: float) -> None:
        if index >= self._have:
            self._beyond.add(index)
        while self._have in self._beyond:
            self._beyond.remove(self._have)
            self._sent.discard(self._have)
            self._have += 1
        self._progressed(now)
        if self.phase is Phase.NEGOTIATING and self._asked_at is None and self.id:
            self.phase = Phase.SENDING  # the receiver is reachable again
        if self.phase is Phase.SENDING:
            self._close_when_complete()

    def _progressed(self, now: float) -> bool:
        count = self._have + len(self._beyond)
        if count <= self._best:
            return False
        self._best, self._progress_at, self._tries, self._ready_at = count, now, 0, now
        return True

    def _stalled(self, now: float) -> bool:
        return now - self._progress_at >= self._stall_s

    def _close_when_complete(self) -> None:
        if self._have == self.offer.chunks:
            self.phase = Phase.CLOSING

    def _offer_again(self, now: float) -> None:
        """Schedule an offer to learn which chunks the receiver has; concurrent failures
        count once.
        """
        waits = self._asked_at is not None or now < self._ready_at
        if self.phase is Phase.NEGOTIATING and waits:
            return
        self._tries += 1
        self.phase = Phase.NEGOTIATING
        self._ready_at = now + _pause_s(self._tries)

    def _fail(self, failure: Failure) -> None:
        self.phase, self.error = Phase.FAILED, failure

    # Choice of the next chunk.

    def _can_write(self) -> bool:
        return self.phase is Phase.SENDING and len(self._flying) < self._pace.window

    def _next_chunk(self) -> int | None:
        """Return the first chunk that is neither acknowledged nor in flight."""
        if not self._can_write():
            return None
        end = min(self._have + self._ahead, self.offer.chunks)
        for index in range(self._have, end):
            if index not in self._beyond and index not in self._flying:
                return index
        return None


def _pause_s(tries: int) -> float:
    return _PAUSES.delay_s(tries, lambda: 0.0)
