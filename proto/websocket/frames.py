"""Conversion between websocket frames and messages, server side (RFC 6455, section 5).

`FrameReader` is fed the bytes read from a socket and returns the binary messages that they
complete; pings, a close and refused input are added to `events`. No extension is negotiated, so
reserved bits are refused, and so are text messages unless the reader accepts them. A bound is
checked as soon as a frame's header is complete, before its payload is stored.

`binary_frames`, `pong_frame` and `close_frame` create the frames of a server, which have no mask.
`masked_frame` creates that of a client.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from proto.websocket.bounds import (
    MAX_CALL_FRAMES,
    MAX_CONTROL_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_REASON_BYTES,
)
from proto.websocket.budget import MessageBudget
from proto.websocket.errors import CloseCode, Fault, FrameError
from proto.websocket.events import CloseReceived, InputRefused, PingReceived, ReaderEvent

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without the compiled module
    from websockets.utils import apply_mask

FINAL: Final = 0x80
RESERVED: Final = 0x70
OPCODE: Final = 0x0F
CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA
FINAL_BINARY: Final = FINAL | BINARY
MASKED: Final = 0x80
MASK_BYTES: Final = 4
NOTHING: Final = -1  # no first byte equals it: inside a fragmented message

MIN_FRAME_BYTES: Final = 6  # two bytes and the mask
LENGTH_16: Final = 126
LENGTH_64: Final = 127
COPY_ONCE_BYTES: Final = 64 * 1024  # above it, a payload is unmasked from a view: one copy less


class FrameReader:
    """Reader of one client's frames.

    The common frame, one masked binary message in one piece, is read in the loop of `receive_data`;
    everything else goes through `_read_other`.

    Attributes:
        account: see `budget.Holder`.
        charged_bytes: see `budget.Holder`.
        events: pings, a close and refused input, in order; the caller empties it.
        more: whether the held bytes may contain more; if so, call `receive_data` with no bytes.
    """

    __slots__ = (
        "_budget",
        "_ended",
        "_fragments",
        "_held",
        "_limit_bytes",
        "_needed_bytes",
        "_takes_text",
        "_text",
        "_wake",
        "account",
        "charged_bytes",
        "events",
        "more",
    )

    def __init__(
        self,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        budget: MessageBudget | None = None,
        wake: Callable[[], None] | None = None,
        takes_text: bool = False,
    ) -> None:
        """Create a reader.

        Args:
            max_message_bytes: maximum size of one message.
            takes_text: whether text messages are accepted, as their bytes.
            budget: budget for incomplete messages.
            wake: function that is called when the budget has ended this reader, after the refusal
                was added to `events`. It is called within another reader's `receive_data`, so read
                `events` later.
        """
        self._limit_bytes = max_message_bytes
        self._budget = budget
        self._wake = wake
        self._takes_text = takes_text
        self._text = False  # the message in `_fragments` is text
        self.account: Hashable | None = None
        self.charged_bytes = 0
        self._held: bytearray | None = None  # an incomplete frame, from its first byte on
        self._needed_bytes = 0  # size that `_held` must reach before it is worth reading again
        self._fragments: bytearray | None = None  # payload of an incomplete message
        self._ended = False
        self.events: list[ReaderEvent] = []
        self.more = False

    def receive_data(self, data: bytes) -> list[bytes]:
        """Read frames from the next bytes.

        Returns:
            The binary messages that are complete now, in order, from up to `MAX_CALL_FRAMES`
            frames. Check `events` afterwards: they occurred between the messages or, for a close or
            a refusal, after them. Then check `more`.
        """
        messages: list[bytes] = []
        self.more = False
        if self._ended:
            return messages
        source: bytes | bytearray = data
        if self._held is not None:
            self._held += data
            if len(self._held) < self._needed_bytes:
                self._charge()
                return messages
            source = self._held
            self._held = None
        position = 0
        end = len(source)
        limit = self._limit_bytes
        others = 0  # frames read that are not a whole message
        plain = FINAL_BINARY if self._fragments is None else NOTHING
        try:
            while end - position >= MIN_FRAME_BYTES:
                size = source[position + 1] - MASKED
                if source[position] != plain or size < 0:
                    following = self._read_other(source, position, end, messages)
                    if following < 0:
                        break
                    position = following
                    plain = FINAL_BINARY if self._fragments is None else NOTHING
                    others += 1
                    if others >= MAX_CALL_FRAMES:
                        self._stop_for_now()
                        break
                    continue
                start = position + 6
                if size == LENGTH_16 and end - position >= 8:
                    start = position + 8
                    size = source[position + 2] << 8 | source[position + 3]
                    if size < LENGTH_16:
                        raise FrameError(Fault.LONG_LENGTH)
                elif size >= LENGTH_16:
                    following = self._extended(source, position, end)
                    if following < 0:
                        break
                    start = following
                    size = int.from_bytes(source[position + 2 : start - 4], "big")
                if size > limit:
                    raise FrameError(Fault.TOO_LARGE)
                following = start + size
                if following > end:
                    self._needed_bytes = following - position
                    break
                if size < COPY_ONCE_BYTES:
                    messages.append(apply_mask(source[start:following], source[start - 4 : start]))
                else:
                    messages.append(_unmask_view(source, start, following))
                position = following
                if len(messages) >= MAX_CALL_FRAMES:
                    self._stop_for_now()
                    break
            holds = position < end and not self._ended
            if holds:
                self._hold(source, position, end)
            if holds or self.charged_bytes or self._fragments is not None:
                self._charge()
        except FrameError as error:
            self._refuse(error.fault)
        return messages

    def keep_data(self, data: bytes) -> None:
        """Hold the next bytes for a later `receive_data`, and set `more`."""
        if not self._ended:
            self._held = bytearray(data) if self._held is None else self._held + data
            self._stop_for_now()
            self._charge()

    def close(self) -> None:
        """Stop reading and release the held bytes."""
        self._ended = True
        self.more = False
        self._held = None
        self._fragments = None
        if self._budget is not None:
            self._budget.settle(self, 0)

    def give_up(self) -> None:
        """Refuse further input, because the budget needs the held bytes."""
        self._refuse(Fault.TOO_MUCH_INCOMPLETE)
        if self._wake is not None:
            self._wake()

    def _stop_for_now(self) -> None:
        """Leave the rest to the next call."""
        self.more = True
        self._needed_bytes = 0

    def _hold(self, source: bytes | bytearray, position: int, end: int) -> None:
        """Keep an incomplete frame; its first two bytes are checked already."""
        held_bytes = end - position
        if held_bytes < 2:
            self._needed_bytes = 2
        else:
            self._check_head(source[position], source[position + 1])
            if held_bytes < MIN_FRAME_BYTES:
                self._needed_bytes = MIN_FRAME_BYTES
        self._held = bytearray(memoryview(source)[position:end])

    def _refuse(self, fault: Fault) -> None:
        self.events.append(InputRefused(fault))
        self.close()

    def _charge(self) -> None:
        """Account for the held bytes in the budget; refuse the input if they do not fit."""
        if self._budget is None:
            return
        held = 0 if self._held is None else len(self._held)
        if self._fragments is not None:
            held += len(self._fragments)
        if not self._budget.settle(self, held):
            self._refuse(Fault.TOO_MUCH_INCOMPLETE)

    def _check_head(self, first: int, second: int) -> None:
        """Refuse a frame if its first two bytes show a fault."""
        opcode = first & OPCODE
        if first & RESERVED:
            raise FrameError(Fault.RESERVED_BIT)
        if not second & MASKED:
            raise FrameError(Fault.UNMASKED)
        if opcode in (CLOSE, PING, PONG):
            if not first & FINAL:
                raise FrameError(Fault.CONTROL_FRAGMENT)
            if second - MASKED > MAX_CONTROL_BYTES:
                raise FrameError(Fault.CONTROL_SIZE)
        elif opcode > BINARY:
            raise FrameError(Fault.UNKNOWN_OPCODE)
        elif (opcode == CONTINUATION) != (self._fragments is not None):
            raise FrameError(Fault.FRAGMENT_ORDER)
        elif opcode == TEXT and not self._takes_text:
            raise FrameError(Fault.TEXT_FRAME)

    def _extended(self, source: bytes | bytearray, position: int, end: int) -> int:
        """Return where the payload of a frame with a long length begins, or -1 if the header is
        incomplete.
        """
        wide = source[position + 1] & 0x7F == LENGTH_64
        start = position + (14 if wide else 8)
        if start > end:
            self._needed_bytes = start - position
            return -1
        # RFC 6455, section 5.2: the minimal number of bytes must be used.
        size = int.from_bytes(source[position + 2 : start - 4], "big")
        if size < (0x10000 if wide else LENGTH_16):
            raise FrameError(Fault.LONG_LENGTH)
        return start

    def _read_other(
        self, source: bytes | bytearray, position: int, end: int, messages: list[bytes]
    ) -> int:
        """Read a control frame or a fragment; return the position after it, or -1 if it is
        incomplete.
        """
        first = source[position]
        self._check_head(first, source[position + 1])
        size = source[position + 1] - MASKED
        start = position + 6
        if size >= LENGTH_16:
            start = self._extended(source, position, end)
            if start < 0:
                return -1
            size = int.from_bytes(source[position + 2 : start - 4], "big")
        opcode = first & OPCODE
        if opcode < CLOSE and size + len(self._fragments or b"") > self._limit_bytes:
            raise FrameError(Fault.TOO_LARGE)
        following = start + size
        if following > end:
            self._needed_bytes = following - position
            return -1
        payload = _unmask_view(source, start, following)
        if opcode < CLOSE:
            if self._fragments is None:
                self._fragments = bytearray(payload)
                self._text = opcode == TEXT
            else:
                self._fragments += payload
            if first & FINAL:
                messages.append(self._whole(self._fragments))
                self._fragments = None
        elif opcode == PING:
            self.events.append(PingReceived(payload))
        elif opcode == CLOSE:
            self._read_close(payload)
            return -1
        return following

    def _whole(self, fragments: bytearray) -> bytes:
        if self._text:
            try:
                fragments.decode()
            except UnicodeDecodeError:
                raise FrameError(Fault.MESSAGE_TEXT) from None
        return bytes(fragments)

    def _read_close(self, payload: bytes) -> None:
        code = int(CloseCode.NO_STATUS)
        if payload:
            code = int.from_bytes(payload[:2], "big")
            try:
                payload[2:].decode()
            except UnicodeDecodeError:
                raise FrameError(Fault.CLOSE_TEXT) from None
            if len(payload) < 2 or not sendable(code):
                raise FrameError(Fault.CLOSE_CODE)
        if self._fragments is not None:
            raise FrameError(Fault.CLOSE_INSIDE_MESSAGE)
        self.events.append(CloseReceived(code, payload))
        self.close()


def _unmask_view(source: bytes | bytearray, start: int, following: int) -> bytes:
    with memoryview(source) as view, view[start:following] as payload:
        return apply_mask(payload, bytes(view[start - 4 : start]))


def sendable(code: int) -> bool:
    """Return whether a close frame may have this code (RFC 6455, section 7.4, and the IANA
    registry).
    """
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def frame_header(size_bytes: int) -> bytes:
    """Return the header of a binary message of that size in one frame."""
    if size_bytes < LENGTH_16:
        return bytes((FINAL_BINARY, size_bytes))
    if size_bytes < 0x10000:
        return b"\x82\x7e" + size_bytes.to_bytes(2, "big")
    return b"\x82\x7f" + size_bytes.to_bytes(8, "big")


SHORT_BYTES: Final = 4096
_SHORT_HEADERS: Final = tuple(frame_header(size) for size in range(SHORT_BYTES))


def binary_frames(payloads: list[bytes]) -> bytes:
    """Return the frames of these binary messages, one after another."""
    if len(payloads) == 1:
        payload = payloads[0]
        size = len(payload)
        return (_SHORT_HEADERS[size] if size < SHORT_BYTES else frame_header(size)) + payload
    parts: list[bytes] = []
    for payload in payloads:
        size = len(payload)
        parts.append(_SHORT_HEADERS[size] if size < SHORT_BYTES else frame_header(size))
        parts.append(payload)
    return b"".join(parts)


def frame_parts(payloads: list[bytes]) -> list[bytes]:
    """Return the same in pieces, header and payload in turn, to be written without a copy."""
    parts: list[bytes] = []
    for payload in payloads:
        parts.append(frame_header(len(payload)))
        parts.append(payload)
    return parts


def framed_bytes(payloads: list[bytes]) -> int:
    """Return the size of `binary_frames(payloads)`."""
    return sum(len(payload) + len(frame_header(len(payload))) for payload in payloads)


def masked_frame(payload: bytes, mask: bytes) -> bytes:
    """Return the frame in which a client sends this binary message.

    Args:
        payload: the message.
        mask: 4 random bytes, new for each frame (RFC 6455, section 5.3).
    """
    header = bytearray(frame_header(len(payload)))
    header[1] |= MASKED
    return b"".join((header, mask, apply_mask(payload, mask)))


def pong_frame(payload: bytes) -> bytes:
    """Return the answer to a ping."""
    return bytes((FINAL | PONG, len(payload))) + payload


def close_frame(payload: bytes) -> bytes:
    """Return a close frame; `payload` comes from `close_payload` or `CloseReceived`."""
    return bytes((FINAL | CLOSE, len(payload))) + payload


def close_payload(code: int, reason: str) -> bytes:
    """Return code and reason of a close frame; the reason is truncated to what fits, at a whole
    character.

    Raises:
        ValueError: No close frame may have that code.
    """
    if not sendable(code):
        raise ValueError(f"close code {code} must not be sent")
    text = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
    return code.to_bytes(2, "big") + text.encode()
