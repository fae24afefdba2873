"""What a websocket consumer gets from the server, whichever server it runs under.

A consumer that finds `rmb.frames` among the ASGI scope's extensions gets a `RelaySocket` there
(`relay/server/frame_protocol.py`); under any other server it makes one from the standard
receive/send pair (`relay/server/asgi_socket.py`). Either way:

    await receive()                              # websocket.connect
    ... verdict: an HTTP answer, or ...
    await send({"type": "websocket.accept"})
    socket.start(receiver)                       # messages go to the receiver from here on
    return                                       # the connection is the receiver's

Under other servers the application stays until `receive()` says websocket.disconnect.

No message passes receive() or send(): a server calls the receiver synchronously with everything one
read brought, and the consumer writes without awaiting.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from proto.websocket.errors import CloseCode, Fault

HIGH_WATER_BYTES: Final = 64 * 1024
"""With more than this in the transport's buffer a socket is full, and `writable` follows."""

EXTENSION: Final = "rmb.frames"  # scope["extensions"][EXTENSION] == {"socket": RelaySocket}


@dataclass(frozen=True, slots=True)
class InputRules:
    """What a connection takes of its client.

    Attributes:
        max_message_bytes: of one message.
        takes_text: text messages are taken as their bytes.
        drops: input that is refused ends the connection without a close frame.
        text_code: close code for text messages that are not taken.
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
        """Take all complete binary messages of one read, in order; empty ones are b""."""

    def writable(self) -> None:
        """The transport's buffer, which had more than `HIGH_WATER_BYTES`, is nearly empty."""

    def closed(self, code: int, detail: str | None) -> None:
        """The connection is over; called exactly once, and nothing is called after it.

        `acknowledged()` can still be asked, now and later: it has its final value.

        Args:
            code: Close code the peer sent (1005: a close frame without one), the code this side
                closed with, or 1006 when the connection ended without any close frame.
            detail: `text_frame`, `too_large` or `protocol_error` when the reader refused the
                peer's input (members of the one list of reasons), else None.
        """


class RelaySocket(Protocol):
    """One accepted websocket connection.

    Positions are byte counts of the outgoing stream: `send_messages` returns the position after
    its messages, and they have arrived in the peer's TCP once `acknowledged()` has reached it.
    """

    @property
    def written(self) -> int:
        """All bytes ever handed over on this connection: handshake answer, frames, pongs, close."""

    @property
    def remote(self) -> str:
        """Client address for logs and the database."""

    @property
    def last_received(self) -> float:
        """`loop.time()` of the last bytes from the client; infinite while it is not read."""

    def set_rules(self, rules: InputRules) -> None:
        """Set what the connection takes; before it is accepted."""

    def start(self, receiver: Receiver, account: Hashable | None = None) -> None:
        """Deliver messages to `receiver` from now on.

        Args:
            receiver: gets them.
            account: whose incomplete messages these are (see `proto.websocket.budget`); None:
                those of nobody else.
        """

    def send_messages(self, payloads: list[bytes]) -> int:
        """Frame the payloads and write them at once, without awaiting.

        Returns:
            The new `written`. Once a close has begun nothing is sent any more; the position
            returned then is one that `acknowledged()` never reaches.
        """

    def buffered_bytes(self) -> int:
        """Bytes the transport holds because the kernel did not take them yet."""

    def acknowledged(self) -> int:
        """Position up to which the peer's TCP has acknowledged; never falls.

        Costs a system call while bytes are outstanding. Truthful after the connection died.
        """

    def drained(self) -> bool:
        """Whether all that was not discarded by a close has been acknowledged."""

    def pause_reading(self) -> None:
        """Stop reading from the client. Idempotent."""

    def resume_reading(self) -> None:
        """Read again. Idempotent."""

    def close(self, code: int, reason: str) -> None:
        """Begin to close; `Receiver.closed` follows within a bounded time.

        A close frame is sent and the peer's awaited. When the kernel does not take bytes (half a
        frame may be in the transport buffer) the buffer is discarded instead, without close
        frame, and what the kernel has drains. Idempotent; nothing is received after it.
        """

    def abort(self) -> None:
        """End the connection now, without close frame."""
