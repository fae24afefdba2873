"""The connection that a websocket consumer gets, whichever server it runs under.

A consumer that finds `rmb.frames` among the ASGI scope's extensions gets a `RelaySocket` there
(`relay/server/frame_protocol.py`); under any other server it creates one from the standard
receive/send pair (`relay/server/asgi_socket.py`). Either way:

    await receive()                              # websocket.connect
    ... verdict: an HTTP answer, or ...
    await send({"type": "websocket.accept"})
    socket.start(receiver)                       # messages go to the receiver from here on
    return                                       # the receiver now owns the connection

Under other servers the application stays until `receive()` returns websocket.disconnect.

No message passes through receive() or send(): a server calls the receiver synchronously with all
messages of one read, and the consumer writes without awaiting.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from proto.websocket.errors import CloseCode, Fault

HIGH_WATER_BYTES: Final = 64 * 1024
"""Bytes in the transport's buffer above which a socket is full, and `writable` will follow."""

EXTENSION: Final = "rmb.frames"  # scope["extensions"][EXTENSION] == {"socket": RelaySocket}


@dataclass(frozen=True, slots=True)
class InputRules:
    """What a connection accepts from its client.

    Attributes:
        max_message_bytes: Maximum size of one message.
        takes_text: Whether text messages are accepted, as their bytes.
        drops: Whether refused input ends the connection without a close frame.
        text_code: Close code for text messages that are not accepted.
    """

    max_message_bytes: int
    takes_text: bool = False
    drops: bool = False
    text_code: CloseCode = CloseCode.UNSUPPORTED_DATA

    def code_of(self, fault: Fault) -> CloseCode:
        """Return the close code for refused input."""
        return self.text_code if fault is Fault.TEXT_FRAME else fault.code


class Receiver(Protocol):
    """The consumer's side. All calls come synchronously from the event loop; none may block."""

    def messages_received(self, messages: list[bytes]) -> None:
        """Handle all complete binary messages of one read, in order; empty ones are b""."""

    def writable(self) -> None:
        """Continue sending: the buffer, which exceeded `HIGH_WATER_BYTES`, is nearly empty."""

    def closed(self, code: int, detail: str | None) -> None:
        """Handle the end of the connection; called exactly once, and no call follows.

        `acknowledged()` can still be called, now and later: it has its final value.

        Args:
            code: Close code that the peer sent (1005: a close frame without one), that this side
                closed with, or 1006 if the connection ended without any close frame.
            detail: `text_frame`, `too_large` or `protocol_error` if the reader refused the peer's
                input (members of the one list of reasons), else None.
        """


class RelaySocket(Protocol):
    """One accepted websocket connection.

    Positions are byte counts of the outgoing stream: `send_messages` returns the position after
    its messages, and they have arrived in the peer's TCP once `acknowledged()` has reached it.
    """

    @property
    def written(self) -> int:
        """All bytes ever written to this connection: handshake answer, frames, pongs, close."""

    @property
    def remote(self) -> str:
        """Address of the client, for logs and the database."""

    @property
    def last_received(self) -> float:
        """`loop.time()` of the last bytes from the client; infinite while reading is paused."""

    def set_rules(self, rules: InputRules) -> None:
        """Set what the connection accepts; must be called before it is accepted."""

    def start(self, receiver: Receiver, account: Hashable | None = None) -> None:
        """Deliver messages to `receiver` from now on.

        Args:
            receiver: Receiver of the messages.
            account: Account that incomplete messages are charged to (see `proto.websocket.budget`);
                None: one of this connection alone.
        """

    def send_messages(self, payloads: list[bytes]) -> int:
        """Frame the payloads and write them at once, without awaiting.

        Returns:
            The new `written`. Once a close has begun nothing more is sent; the position returned
            then is one that `acknowledged()` never reaches.
        """

    def buffered_bytes(self) -> int:
        """Return the bytes that the transport holds because the kernel has not taken them yet."""

    def acknowledged(self) -> int:
        """Return the position up to which the peer's TCP has acknowledged; it never decreases.

        Costs a system call while bytes are outstanding. Still correct after the connection died.
        """

    def drained(self) -> bool:
        """Check whether everything that a close did not discard has been acknowledged."""

    def pause_reading(self) -> None:
        """Stop reading from the client. Idempotent."""

    def resume_reading(self) -> None:
        """Resume reading. Idempotent."""

    def close(self, code: int, reason: str) -> None:
        """Begin to close; `Receiver.closed` follows within a bounded time.

        A close frame is sent and the peer's awaited. If the kernel does not take bytes (half a
        frame may be in the transport buffer), the buffer is discarded instead, without a close
        frame, and the kernel delivers what it has. Idempotent; nothing is received afterwards.
        """

    def abort(self) -> None:
        """End the connection now, without a close frame."""
