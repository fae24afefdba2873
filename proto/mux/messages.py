"""Messages in the bytes of a stream: each is preceded by its length as a varint.

A stream has no message boundaries: one read may return many messages, or a part of one.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto.mux import varint
from proto.mux.errors import MuxError


class MessageTooLargeError(MuxError):
    """A message is longer than allowed, according to its length; the stream cannot be read further.

    Attributes:
        size_bytes: announced size.
        limit_bytes: maximum size.
        messages: complete messages that the same data contained before it.
    """

    def __init__(self, size_bytes: int, limit_bytes: int, messages: list[bytes]) -> None:
        super().__init__(f"message of {size_bytes} bytes: at most {limit_bytes} are allowed")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.messages = messages


class MessageReader:
    """Splits the bytes of a stream into messages.

    Args:
        max_bytes: maximum size of one message.
    """

    __slots__ = ("_body", "_held", "_needed", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._held = bytearray()  # start of an incomplete message, with its length
        self._needed = 0  # size of `_held` needed for the next step
        self._body = 0  # where the message begins in `_held`; 0: its length is unknown

    @property
    def held_bytes(self) -> int:
        """Size of the incomplete message; not 0 at the end of a stream if a message was cut off."""
        return len(self._held)

    def receive_data(self, data: bytes) -> list[bytes]:
        """Return the messages that are complete after some more data.

        Raises:
            MessageTooLargeError: a message is too long; this reader must not be used any more.
        """
        messages: list[bytes] = []
        position = self._complete(data, messages) if self._held else 0
        size = len(data)
        max_bytes = self.max_bytes
        while position < size:
            length = data[position]
            start = position + 1
            if length >= 1 << 6:
                start = position + (1 << (length >> 6))
                if start > size:
                    self._hold(data, position, start, 0)
                    break
                if length < 2 << 6:  # the common case
                    length = (length & 0x3F) << 8 | data[position + 1]
                else:
                    length, _ = varint.decode(data, position)
            if length > max_bytes:
                raise MessageTooLargeError(length, max_bytes, messages)
            end = start + length
            if end > size:
                self._hold(data, position, end, start - position)
                break
            messages.append(data[start:end])
            position = end
        return messages

    def _hold(self, data: bytes, position: int, end: int, body: int) -> None:
        self._held += memoryview(data)[position:]
        self._needed = end - position
        self._body = body

    def _complete(self, data: bytes, messages: list[bytes]) -> int:
        """Complete the held message, and return the position in the data after what was used."""
        held = self._held
        position = 0
        while True:
            until = position + self._needed - len(held)
            held += memoryview(data)[position:until]
            if len(held) < self._needed:
                return len(data)
            position = until
            if self._body:
                messages.append(bytes(memoryview(held)[self._body :]))
                held.clear()
                return position
            length, self._body = varint.decode(bytes(held))
            if length > self.max_bytes:
                raise MessageTooLargeError(length, self.max_bytes, messages)
            self._needed = self._body + length


def framed(payloads: Iterable[bytes]) -> bytes:
    """Return the bytes of a stream that carry the given messages."""
    parts: list[bytes] = []
    for payload in payloads:
        size = len(payload)
        if size < 1 << 6:
            parts.append(bytes((size,)))
        elif size < 1 << 14:
            parts.append((size | 1 << 14).to_bytes(2, "big"))
        else:
            parts.append(varint.encode(size))
        parts.append(payload)
    return b"".join(parts)
