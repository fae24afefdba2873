"""The calling side of a call (sheet section 12).

Pass it what arrives on the stream; then do what `next_action` returns, and handle the events of
`next_event`. Times are nanoseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from proto.mux.bounds import NANOS_PER_MS
from proto.mux.frames import Half
from proto.rpc import messages
from proto.rpc.call import Action, Kind, Outbox
from proto.rpc.errors import RpcError, RpcMessageError, RpcStreamError, RpcTimeoutError
from proto.rpc.framing import JsonReader
from proto.rpc.messages import TIMEOUT, Json

SENDS_ONE: Final = frozenset({Kind.UNARY, Kind.SERVER_STREAM})
GETS_ONE: Final = frozenset({Kind.UNARY, Kind.CLIENT_STREAM})


@dataclass(frozen=True, slots=True)
class ResultReceived:
    """A response was received; for a raw call, the answer to its header.

    Attributes:
        result: result of the response, including any metadata.
    """

    result: Any


@dataclass(frozen=True, slots=True)
class BytesReceived:
    """Bytes of a raw call were received."""

    data: bytes


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call succeeded, and nothing more follows."""


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The call failed, and nothing more follows.

    Attributes:
        error: the failure.
    """

    error: RpcError


CallerEvent = ResultReceived | BytesReceived | CallEnded | CallFailed


class Caller:
    """One call.

    Attributes:
        is_over: whether it has ended or failed.
    """

    def __init__(
        self,
        kind: Kind,
        method: str,
        now_ns: int,
        *,
        metadata: Json | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Create a call.

        Args:
            kind: kind of the call, which must be that of the handler.
            method: method to call.
            now_ns: current time.
            metadata: metadata for the handler.
            timeout_ms: time-out for the first response, which is also sent to the handler.

        Raises:
            ValueError: the time-out is negative.
        """
        if timeout_ms is not None and timeout_ms < 0:
            raise ValueError(f"timeout_ms {timeout_ms:g} is negative")
        self.is_over = False
        self._kind = kind
        self._method = method
        self._metadata: dict[str, Any] = dict(metadata or {})
        if timeout_ms is not None:
            self._metadata[TIMEOUT] = timeout_ms
        self._due_ns = None if timeout_ms is None else now_ns + int(timeout_ms * NANOS_PER_MS)
        self._timeout_ms = timeout_ms
        self._sent = 0
        self._results = 0
        self._reader = JsonReader()
        self._outbox = Outbox()
        self._events: deque[CallerEvent] = deque()

    # --- calls of the owner -----------------------------------------------------------------------

    def send(self, params: Json) -> None:
        """Send a message; for a raw call, its header.

        Raises:
            TypeError: the parameters are not JSON.
            ValueError: a call of this kind has one message only, which was sent already.
        """
        if self._sent and (self._kind is Kind.RAW or self._kind in SENDS_ONE):
            raise ValueError(f"a call of the kind {self._kind.name} sends one message")
        is_first = not self._sent
        written = messages.request(self._method, params, self._metadata if is_first else None)
        self._sent += 1
        # If the call has one message, only the end follows, which the stream holds back itself
        # (G2).
        self._outbox.write(written, is_alone=is_first and self._kind not in SENDS_ONE)
        if self._kind is Kind.SERVER_STREAM:
            self._outbox.end()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes of a raw call, after its header."""
        if self._kind is not Kind.RAW or not self._sent:
            raise ValueError("bytes are sent by raw calls, behind their header")
        self._outbox.write(data)

    def end(self) -> None:
        """End the writing: nothing more is sent."""
        self._outbox.end()

    def give_up(self) -> None:
        """Abandon the call in any state."""
        if not self.is_over:
            self.is_over = True
            self._outbox.give_up()

    # --- incoming messages ------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Handle bytes of the stream."""
        if self.is_over:
            return
        if self._kind is Kind.RAW and self._results:
            self._events.append(BytesReceived(data))
            return
        try:
            if self._kind is Kind.RAW:
                self._receive_header_answer(data)
            else:
                for value in self._reader.receive(data):
                    if not self._receive_result(messages.read_response(value)):
                        break
        except RpcError as error:
            self._fail(error)

    def receive_end(self) -> None:
        """Record that the handler writes no more."""
        if self.is_over:
            return
        if self._reader.is_within and not (self._kind is Kind.RAW and self._results):
            self._fail(RpcStreamError("the stream ended within a message"))
        elif not self._results and (self._kind is Kind.RAW or self._kind in GETS_ONE):
            self._fail(RpcStreamError("the stream ended without a response"))
        else:
            self._finish()

    def receive_failure(self, half: Half, code: int, text: str) -> None:
        """Record that a half of the stream failed.

        It is not a failure of the call if the handler reads no more (R2, R3): what the handler
        writes decides.

        Args:
            half: half of the stream of this side.
            code: code of the other side.
            text: what happened.
        """
        if half is Half.WRITE:
            self._outbox.stop()
        elif not self.is_over:
            self.is_over = True
            self._outbox.end()
            self._events.append(CallFailed(RpcStreamError(text, code)))

    def acknowledged(self) -> None:
        """Record that the handler has read what was written alone."""
        self._outbox.acknowledged()

    def next_action(self) -> Action | None:
        """Return the next action on the stream, or None."""
        return self._outbox.next()

    def next_event(self) -> CallerEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def next_timer(self) -> int | None:
        """Return when to call `handle_timer`, or None."""
        return None if self.is_over or self._results else self._due_ns

    def handle_timer(self, now_ns: int) -> None:
        """Fail the call if no response arrived in time."""
        due_ns = self.next_timer()
        if due_ns is not None and now_ns >= due_ns:
            self.is_over = True
            self._outbox.give_up()
            text = f"{self._method}: no response within {self._timeout_ms:g} ms"
            self._events.append(CallFailed(RpcTimeoutError(text)))

    # --- details ----------------------------------------------------------------------------------

    def _receive_header_answer(self, data: bytes) -> None:
        value = self._reader.next_of(data)
        if value is None:
            return
        self._receive_result(messages.read_response(value))
        rest = self._reader.rest().lstrip(b"\n")
        if rest:
            self._events.append(BytesReceived(rest))

    def _receive_result(self, result: Any) -> bool:
        """Queue the result for the owner, and return whether more results may follow."""
        self._results += 1
        self._events.append(ResultReceived(result))
        if self._kind in GETS_ONE:
            self._finish()
            return False
        return True

    def _finish(self) -> None:
        self.is_over = True
        self._outbox.end()
        self._events.append(CallEnded())

    def _fail(self, error: RpcError) -> None:
        """Fail like the reference: stop reading, and end the writing (R3)."""
        self.is_over = True
        if isinstance(error, RpcMessageError):
            self._outbox.give_up()
        else:
            self._outbox.cancel()
            self._outbox.end()
        self._events.append(CallFailed(error))
