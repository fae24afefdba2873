"""Counting the fields of an envelope without parsing it.

A message may have megabytes, nearly all of it normally payload. If it consists of millions of empty
fields instead, the parser takes a fifth of a second, and reading such a list takes longer still,
during which the worker does nothing else. So the fields of a large message are first counted up to
a bound, which takes some microseconds whatever the message contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proto.rmb.bounds import MAX_FIELDS, MAX_REPEATED_UID_BYTES

COUNTED_BYTES: Final = 64 * 1024
"""Size above which fields are counted. Parsing fewer bytes takes a millisecond at most, whatever
they contain. Several small messages take as long as a large one of the same size, so a lower bound
would protect nothing, and counting costs 4 us."""

_VARINT, _EIGHT_BYTES, _TEXT, _FOUR_BYTES = 0, 1, 2, 5
_GROUPS: Final = (3, 4)
_HEAD_BYTES: Final = 4
"""Size of the field number and length of a uid field."""


def has_many_fields(raw: bytes, most: int = MAX_FIELDS) -> bool:
    """Return whether a message has more than `most` fields, not counting those of submessages.

    False for messages that the parser rejects anyway, as far as that is detected here.
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
    """Return the small fields among the first ones of a message with many; an answer refers to
    these.
    """
    return b"".join(_small_fields(raw, most))


def _small_fields(raw: bytes, most: int) -> Iterator[bytes]:
    at = 0
    for _ in range(most):
        begin, at = at, _field_end(raw, at)
        if at - begin <= MAX_REPEATED_UID_BYTES + _HEAD_BYTES:
            yield raw[begin:at]


def _field_end(raw: bytes, at: int) -> int:
    """Return where the field that begins here ends; raise IndexError if the parser rejects it
    anyway.
    """
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
    if kind in _GROUPS:  # fields inside a group count like those outside
        return at
    raise IndexError("no kind of field")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
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
