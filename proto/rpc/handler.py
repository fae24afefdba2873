"""The called side of a call (sheet section 12).

Pass it what arrives on the stream. The first event is `Called`; then the owner states the kind of
the method (`accept`), answers (`respond`, `end`) or fails (`fail`), and does what `next_action`
returns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from proto.mux.bounds import NANOS_PER_MS
from proto.mux.frames import Half
from proto.rpc import messages
from proto.rpc.call import Action, Kind, Outbox
from proto.rpc.caller import GETS_ONE, SENDS_ONE, BytesReceived
from proto.rpc.errors import ErrorCode, PublicError, RpcMessageError, error_member
from proto.rpc.framing import JsonReader
from proto.rpc.messages import Request


@dataclass(frozen=True, slots=True)
class Called:
    """The first message was received; the owner calls `accept` or `fail` next.

    Attributes:
        request: method, parameters and metadata.
    """

    request: Request


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message of the caller was received."""

    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class InputEnded:
    """The caller sends nothing more."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """The caller is gone, or waits no longer: the owner must stop its work.

    Attributes:
        text: why.
        timed_out: whether there was no response in time; the caller is notified of it.
    """

    text: str
    timed_out: bool = False


HandlerEvent = Called | MessageReceived | InputEnded | BytesReceived | Aborted


class Handler:
    """One call.

    Attributes:
        is_over: whether it was answered, has failed or was aborted.
    """

    def __init__(self, now_ns: int, timeout_ms: float | None = None) -> None:
        """Create the handler of a call.

        Args:
            now_ns: current time.
            timeout_ms: time-out for the first message and for the first response, both counted from
                now; the method or the caller may lower it.
        """
        self.is_over = False
        self._kind: Kind | None = None
        self._began_ns = now_ns
        self._timeout_ms = timeout_ms
        self._has_answered = False
        self._request: Request | None = None
        self._early: list[bytes] = []  # bytes received before the kind is known
        self._input_ended = False
        self._reader = JsonReader()
        self._outbox = Outbox()
        self._events: deque[HandlerEvent] = deque()

    # --- calls of the owner -----------------------------------------------------------------------

    def accept(self, kind: Kind, timeout_ms: float | None = None) -> None:
        """Serve the call.

        Args:
            kind: kind of the method.
            timeout_ms: time-out of the method for its first response; the lowest of all applies.
        """
        assert self._request is not None
        self._kind = kind
        bounds = (self._timeout_ms, timeout_ms, self._request.timeout_ms)
        self._timeout_ms = min((each for each in bounds if each is not None), default=None)
        if kind is not Kind.RAW and kind not in SENDS_ONE:
            self._events.append(MessageReceived(self._request.params))
        early, self._early = self._early, []
        for data in early:
            self._receive(data)
        if self._input_ended and not self.is_over:
            self._end_input()

    def respond(self, result: Any) -> None:
        """Send a response; for a raw call, the answer to its header.

        Raises:
            TypeError: the result is not JSON.
        """
        if self.is_over:
            return
        written = messages.response(result)
        is_alone = self._kind is Kind.RAW and not self._has_answered
        self._has_answered = True
        self._outbox.write(written, is_alone)
        if self._kind in GETS_ONE:
            self.end()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes of a raw call, after the answer to its header."""
        if not self.is_over:
            self._outbox.write(data)

    def end(self) -> None:
        """End the call: nothing more is sent."""
        if not self.is_over:
            self.is_over = True
            self._outbox.end()
            if not self._input_ended and self._kind is not Kind.UNARY:  # unary callers end now
                self._outbox.cancel()

    def fail(self, error: BaseException) -> None:
        """Fail the call, and send an error that hides internal details.

        The bytes of a raw call cannot carry an error: they just break off.
        """
        if self.is_over:
            return
        self.is_over = True
        if self._kind is Kind.RAW and self._has_answered:
            self._outbox.give_up()
        else:
            self._outbox.write(messages.error_response(error_member(error)))
            if not self._input_ended:
                self._outbox.cancel()
            self._outbox.end()

    # --- incoming messages ------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Handle bytes of the stream."""
        if not self.is_over:
            self._receive(data)

    def receive_end(self) -> None:
        """Record that the caller writes no more."""
        if self._input_ended:
            return
        self._input_ended = True
        if self.is_over:
            return
        if self._request is None:
            self._refuse(RpcMessageError(ErrorCode.MISSING_HEADER, "the call has no first message"))
        elif self._kind is not None:
            self._end_input()

    def receive_failure(self, half: Half, text: str) -> None:
        """Record that a half of the stream failed: the caller has abandoned the call.

        Args:
            half: half of the stream of this side.
            text: what happened.
        """
        if half is Half.WRITE:
            self._outbox.stop()
        else:
            self._input_ended = True
            self._outbox.end()
        if not self.is_over:
            self.is_over = True
            self._events.append(Aborted(text))

    def acknowledged(self) -> None:
        """Record that the caller has read what was written alone."""
        self._outbox.acknowledged()

    def next_action(self) -> Action | None:
        """Return the next action on the stream, or None."""
        return self._outbox.next()

    def next_event(self) -> HandlerEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def next_timer(self) -> int | None:
        """Return when to call `handle_timer`, or None."""
        if self.is_over or self._has_answered or self._timeout_ms is None:
            return None
        return self._began_ns + int(self._timeout_ms * NANOS_PER_MS)

    def handle_timer(self, now_ns: int) -> None:
        """Abort the call if there is no response in time."""
        due_ns = self.next_timer()
        if due_ns is not None and now_ns >= due_ns:
            text = f"no response within {self._timeout_ms:g} ms"
            self.fail(PublicError(text, ErrorCode.TIMED_OUT))
            self._events.append(Aborted(text, timed_out=True))

    # --- details ----------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        try:
            if self._request is None:
                self._receive_header(data)
            elif self._kind is None:
                self._early.append(data)
            elif self._kind is Kind.RAW:
                self._events.append(BytesReceived(data))
            else:
                for value in self._reader.receive(data):
                    self._receive_message(messages.read_request(value))
        except RpcMessageError as error:
            self._refuse(error)

    def _receive_header(self, data: bytes) -> None:
        value = self._reader.next_of(data)
        if value is None:
            return
        self._request = messages.read_request(value)
        self._events.append(Called(self._request))
        rest = self._reader.rest()
        if rest:
            self._early.append(rest)

    def _receive_message(self, request: Request) -> None:
        if self._kind not in SENDS_ONE:  # otherwise the message is superfluous, and ignored
            self._events.append(MessageReceived(request.params))

    def _end_input(self) -> None:
        if self._reader.is_within:
            self._refuse(RpcMessageError(ErrorCode.PARSE, "the stream ended within a message"))
        else:
            self._events.append(InputEnded())

    def _refuse(self, error: RpcMessageError) -> None:
        was_called = self._request is not None
        self.fail(error)
        if was_called:
            self._events.append(Aborted(str(error)))
