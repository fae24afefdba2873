"""Messages in the bytes of a stream: each has its length as a varint in front.

A stream has no borders: what one side reads at a time may hold many messages, or a piece of one.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto.mux import varint
from proto.mux.errors import MuxError


class MessageTooLargeError(MuxError):
    """A message is announced that is longer than allowed: the stream cannot be read on.

    Attributes:
        size_bytes: as announced.
        limit_bytes: what is allowed.
        messages: that came whole with the same bytes, before it.
    """

    def __init__(self, size_bytes: int, limit_bytes: int, messages: list[bytes]) -> None:
        super().__init__(f"message of {size_bytes} bytes: at most {limit_bytes} are allowed")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.messages = messages


class MessageReader:
    """Cuts the bytes of a stream into messages.

    Args:
        max_bytes: of one message.
    """

    __slots__ = ("_body", "_held", "_needed", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._held = bytearray()  # of a message that is not whole, its length included
        self._needed = 0  # so many bytes are to be held for the next step
        self._body = 0  # where the message begins in them; 0: its length is not known yet

    @property
    def held_bytes(self) -> int:
        """Bytes kept of a message that is not whole; at the end of a stream they are its cut."""
        return len(self._held)

    def receive_data(self, data: bytes) -> list[bytes]:
        """Return the messages that are whole now.

        Raises:
            MessageTooLargeError: nothing more is to be passed to this reader.
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
                if length < 2 << 6:  # most are
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
        """Complete the message that is held; return the position behind what was taken."""
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
    """Return the bytes of a stream that carry these messages."""
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
