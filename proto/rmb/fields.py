"""How many fields the bytes of an envelope have, told without parsing them.

A message may have megabytes, and normally nearly all of it is the payload. Made of millions of
empty fields instead, it takes the parser a fifth of a second, and whoever then reads such a list
longer still; a worker would do nothing else meanwhile. So those of a large message are counted
first, up to a bound: some microseconds, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proto.rmb.bounds import MAX_FIELDS, MAX_REPEATED_UID_BYTES

COUNTED_BYTES: Final = 64 * 1024
"""Parsing fewer takes a millisecond at most, whatever they are. Several small messages take as long
as a large one of their bytes, so a lower bound would protect nothing, and counting costs 4 us."""

_VARINT, _EIGHT_BYTES, _TEXT, _FOUR_BYTES = 0, 1, 2, 5
_GROUPS: Final = (3, 4)
_HEAD_BYTES: Final = 4
"""Number and size of a field with a uid."""


def has_many_fields(raw: bytes, most: int = MAX_FIELDS) -> bool:
    """Whether a message has more fields than that, those of its parts not counted.

    False for what the parser refuses anyway, as far as that is noticed.
    """
    at, end = 0, len(raw)
    try:
        for _ in range(most):
            if at >= end:
                return False
            at = _field_end(raw, at)
    except IndexError:
        return False
    return at < end


def first_fields(raw: bytes, most: int = MAX_FIELDS) -> bytes:
    """The small ones of the first fields of a message that has many: what an answer refers to."""
    return b"".join(_small_fields(raw, most))


def _small_fields(raw: bytes, most: int) -> Iterator[bytes]:
    at = 0
    for _ in range(most):
        begin, at = at, _field_end(raw, at)
        if at - begin <= MAX_REPEATED_UID_BYTES + _HEAD_BYTES:
            yield raw[begin:at]


def _field_end(raw: bytes, at: int) -> int:
    """Where the field that begins here ends; an IndexError where the parser refuses it anyway."""
    tag, at = _varint(raw, at)
    kind = tag & 7
    if kind == _TEXT:
        size, at = _varint(raw, at)
        return at + size
    if kind == _VARINT:
        return _varint(raw, at)[1]
    if kind == _FOUR_BYTES:
        return at + 4
    if kind == _EIGHT_BYTES:
        return at + 8
    if kind in _GROUPS:  # what is inside of a group counts like what is beside it
        return at
    raise IndexError("no kind of field")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number and where the next thing begins."""
    number = raw[at]
    if number < 0x80:
        return number, at + 1
    number &= 0x7F
    for place in range(1, 10):
        byte = raw[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise IndexError("a number of more than ten bytes")
