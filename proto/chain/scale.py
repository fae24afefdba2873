"""SCALE: the binary encoding of Substrate chains.

Fixed-width integers are little-endian. A compact integer takes one, two or four bytes, marked in
its lowest two bits, or a byte count and that many bytes; only the shortest form is valid, as the
chain itself rejects others. A vector is a compact count and its items. An option is a byte 0, or a
byte 1 and the value.

A `Reader` decodes values. Each call passes the name of the field for error messages, and a bound
for everything of variable length, which is checked before memory is allocated.
"""

from __future__ import annotations

from typing import Final

from proto.chain.bounds import MAX_COMPACT
from proto.chain.errors import BoundError, ScaleError

_ONE_BYTE_END: Final = 2**6
_TWO_BYTES_END: Final = 2**14
_FOUR_BYTES_END: Final = 2**30
_SMALLEST_LONG_BYTES: Final = 4


class Reader:
    """Reader that decodes one field after another from bytes.

    Attributes:
        offset: position at which the next field begins.
    """

    __slots__ = ("_data", "offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self._data = data
        self.offset = offset

    def fixed(self, field: str, size_bytes: int) -> bytes:
        """Return the next `size_bytes` bytes.

        Raises:
            ScaleError: fewer bytes are left.
        """
        end = self.offset + size_bytes
        if end > len(self._data):
            left = max(0, len(self._data) - self.offset)
            raise ScaleError(field, f"{size_bytes} bytes expected, {left} left")
        value = self._data[self.offset : end]
        self.offset = end
        return value

    def u8(self, field: str) -> int:
        """Read one byte as a number."""
        return self.fixed(field, 1)[0]

    def u32(self, field: str) -> int:
        """Read a 32-bit number."""
        return int.from_bytes(self.fixed(field, 4), "little")

    def compact(self, field: str, maximum: int = MAX_COMPACT, unit: str = "") -> int:
        """Read a compact number.

        Raises:
            ScaleError: the bytes end early, or the number is not in its shortest form.
            BoundError: the number is above `maximum`.
        """
        first = self.u8(field)
        mode = first & 0b11
        if mode == 0b11:
            size_bytes = (first >> 2) + _SMALLEST_LONG_BYTES
            value = int.from_bytes(self.fixed(field, size_bytes), "little")
            smallest = max(_FOUR_BYTES_END, 1 << 8 * (size_bytes - 1))
        else:
            size_bytes = 1 << mode
            rest = self.fixed(field, size_bytes - 1)
            value = (int.from_bytes(rest, "little") << 8 | first) >> 2
            smallest = (0, _ONE_BYTE_END, _TWO_BYTES_END)[mode]
        if value < smallest:
            raise ScaleError(field, "a compact number that is not in its shortest form")
        if value > maximum:
            raise BoundError(field, value, maximum, unit)
        return value

    def blob(self, field: str, max_bytes: int) -> bytes:
        """Read a vector of bytes.

        Raises:
            ScaleError: the bytes end early.
            BoundError: the vector is longer than `max_bytes`.
        """
        return self.fixed(field, self.compact(field, max_bytes, "bytes"))

    def option(self, field: str) -> bool:
        """Read the first byte of an option, and return whether a value follows.

        Raises:
            ScaleError: the byte is neither 0 nor 1.
        """
        mark = self.u8(field)
        if mark > 1:
            raise ScaleError(field, f"an option begins with 0 or 1, not {mark}")
        return mark == 1

    def option_blob(self, field: str, max_bytes: int) -> bytes | None:
        """Read an option of a vector of bytes."""
        return self.blob(field, max_bytes) if self.option(field) else None

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        value = self._data[self.offset :]
        self.offset = len(self._data)
        return value

    def finish(self, field: str) -> None:
        """Check that no bytes remain.

        Raises:
            ScaleError: bytes remain.
        """
        left = len(self._data) - self.offset
        if left:
            raise ScaleError(field, f"{left} bytes after the end")


def u32(field: str, value: int) -> bytes:
    """Encode a 32-bit number.

    Raises:
        ScaleError: the number does not fit.
    """
    try:
        return value.to_bytes(4, "little")
    except OverflowError:
        raise ScaleError(field, f"{value} is not a 32-bit number") from None


def compact(field: str, value: int) -> bytes:
    """Encode a compact number in its shortest form.

    Raises:
        ScaleError: the number is negative.
        BoundError: the number is too large for the compact form.
    """
    if value < 0:
        raise ScaleError(field, f"{value} is negative")
    if value > MAX_COMPACT:
        raise BoundError(field, value, MAX_COMPACT, "")
    if value < _ONE_BYTE_END:
        return (value << 2).to_bytes(1, "little")
    if value < _TWO_BYTES_END:
        return (value << 2 | 0b01).to_bytes(2, "little")
    if value < _FOUR_BYTES_END:
        return (value << 2 | 0b10).to_bytes(4, "little")
    size_bytes = (value.bit_length() + 7) // 8
    mark = (size_bytes - _SMALLEST_LONG_BYTES) << 2 | 0b11
    return bytes([mark]) + value.to_bytes(size_bytes, "little")


def blob(field: str, value: bytes, max_bytes: int) -> bytes:
    """Encode a vector of bytes.

    Raises:
        BoundError: the vector is longer than `max_bytes`.
    """
    if len(value) > max_bytes:
        raise BoundError(field, len(value), max_bytes)
    return compact(field, len(value)) + value


def option_blob(field: str, value: bytes | None, max_bytes: int) -> bytes:
    """Encode an option of a vector of bytes."""
    return b"\0" if value is None else b"\1" + blob(field, value, max_bytes)


def fixed(field: str, value: bytes, size_bytes: int) -> bytes:
    """Return `value` after checking that it has the expected size.

    Raises:
        ScaleError: it has another number of bytes.
    """
    if len(value) != size_bytes:
        raise ScaleError(field, f"{size_bytes} bytes expected, not {len(value)}")
    return value
