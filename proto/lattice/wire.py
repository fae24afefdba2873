"""Msgpack records: maps with string keys, or arrays in field order (sheet section 2).

Most messages are decoded in one step of the library, with limits on arrays and maps: otherwise a
few nested headers could announce more memory than exists. A message that this step refuses is
decoded field by field, which handles byte fields written as arrays of integers and bytes after the
record, and finds the name of a malformed field.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Any, Final

import msgpack

from proto.lattice.bounds import MAX_FIELDS, MAX_LINK_VALUES, MAX_MESSAGE_BYTES, MAX_UINT
from proto.lattice.errors import FormatError

_MAX_ARRAY: Final = 16
"""Maximum number of elements of an array other than bytes; the longest record has nine fields."""
_MAX_MAP: Final = MAX_LINK_VALUES
_REQUIRED: Final = object()
_SHOWN_CHARS: Final = 64

Record = dict[str, Any]


def unpack_record(data: bytes, what: str, names: tuple[str, ...], blobs: Collection[str]) -> Record:
    """Return the fields of a record, unchecked.

    Args:
        data: bytes of a whole message; bytes after the record are ignored.
        what: name of the record, for errors.
        names: names of its fields in order.
        blobs: names of the fields that contain bytes.

    Raises:
        FormatError: the data is not a record, or exceeds a limit.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise FormatError(f"{what} of {len(data)} bytes, limit: {MAX_MESSAGE_BYTES} bytes")
    try:
        record = msgpack.unpackb(
            data,
            raw=False,
            unicode_errors="surrogateescape",
            object_pairs_hook=_unique,
            max_array_len=_MAX_ARRAY,
            max_map_len=_MAX_MAP,
        )
    except ValueError:
        return _walk(data, what, names, blobs)
    if type(record) is dict and len(record) <= MAX_FIELDS:
        return record
    return _walk(data, what, names, blobs)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record


def _walk(data: bytes, what: str, names: tuple[str, ...], blobs: Collection[str]) -> Record:
    unpacker = msgpack.Unpacker(
        None,
        raw=False,
        unicode_errors="surrogateescape",
        object_pairs_hook=_unique,
        max_array_len=_MAX_ARRAY,
        max_map_len=_MAX_MAP,
        max_buffer_size=max(len(data), 1),
    )
    unpacker.feed(data)
    marker = data[:1]
    record: Record = {}
    field = ""
    try:
        if marker and (marker[0] & 0xF0 == 0x80 or marker[0] in (0xDE, 0xDF)):
            size = unpacker.read_map_header()
            _check_fields(size, MAX_FIELDS, what)
            for _ in range(size):
                field = ""
                field = unpacker.unpack()
                if type(field) is not str:
                    raise FormatError(f"{what}: a key is {_kind(field)}, expected text")
                if field in record:
                    raise FormatError(f"{what}: field {_shown(field)} occurs twice", field)
                if field not in names:
                    unpacker.skip()
                    continue
                record[field] = _value(unpacker, data, field in blobs)
        elif marker and (marker[0] & 0xF0 == 0x90 or marker[0] in (0xDC, 0xDD)):
            size = unpacker.read_array_header()
            _check_fields(size, len(names), what)
            for field in names[:size]:
                record[field] = _value(unpacker, data, field in blobs)
        else:
            raise FormatError(f"{what}: expected a msgpack map or array")
    except msgpack.OutOfData:
        raise FormatError(f"{what}: {len(data)} bytes end within {_place(field)}", field) from None
    except ValueError as error:
        reason = str(error) or type(error).__name__
        raise FormatError(f"{what}: {_place(field)}: {reason}", field) from None
    return record


def _value(unpacker: Any, data: bytes, blob: bool) -> object:
    position = unpacker.tell()
    first = data[position] if blob and position < len(data) else 0
    if not (first & 0xF0 == 0x90 or first in (0xDC, 0xDD)):
        value: object = unpacker.unpack()
        return value
    size = unpacker.read_array_header()
    if size > len(data) - unpacker.tell():
        raise msgpack.OutOfData
    items = list(islice(unpacker, size))
    if len(items) != size:
        raise msgpack.OutOfData
    return _joined(items)


def _joined(items: list[Any]) -> bytes:
    if not {int}.issuperset(map(type, items)):
        raise ValueError("expected bytes, or integers from 0 to 255")
    return bytes(items)


def _check_fields(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise FormatError(f"{what} of {size} fields, limit: {limit}")


# --- values -------------------------------------------------------------------------------------


def text_of(record: Record, what: str, name: str, limit: int, default: object = "") -> str:
    """Return a text field.

    Raises:
        FormatError: the field is missing without a default, of another type, too long, or not
            UTF-8.
    """
    value = record.get(name, default)
    if type(value) is not str:
        raise wrong(what, name, value, "text")
    if len(value) > limit:
        raise too_long(what, name, len(value), limit, "characters")
    if not value.isascii():
        check_utf8(what, name, value)
    return value


def bytes_of(record: Record, what: str, name: str, limit: int) -> bytes:
    """Return a field of bytes, which may be encoded as text; empty if the field is missing.

    Raises:
        FormatError: the field is of another type, or too long.
    """
    value = record.get(name, b"")
    if type(value) is str:
        value = value.encode("utf-8", "surrogateescape")
    elif type(value) is list:
        try:
            value = _joined(value)
        except ValueError as error:
            raise FormatError(f"{what}: field {name!r}: {error}", name) from None
    elif type(value) is not bytes:
        raise wrong(what, name, value, "bytes")
    if len(value) > limit:
        raise too_long(what, name, len(value), limit, "bytes")
    return value


def uint_of(record: Record, what: str, name: str) -> int:
    """Return a required integer field that is not negative.

    Raises:
        FormatError: the field is missing, or of another type.
    """
    value = record.get(name, _REQUIRED)
    if type(value) is not int or not 0 <= value <= MAX_UINT:
        raise wrong(what, name, value, "an integer from 0 to 2^64 - 1")
    return value


def bool_of(record: Record, what: str, name: str) -> bool:
    """Return a boolean field; False if it is missing.

    Raises:
        FormatError: the field is of another type.
    """
    value = record.get(name, False)
    if type(value) is not bool:
        raise wrong(what, name, value, "a boolean")
    return value


def texts_of(
    record: Record, what: str, name: str, entries: int, chars: int, default: object = _REQUIRED
) -> dict[str, str]:
    """Return a field that is a map of texts.

    Raises:
        FormatError: the field is missing without a default, of another type, or has too many or
            too long entries.
    """
    value = record.get(name, default)
    if type(value) is not dict:
        raise wrong(what, name, value, "a map of texts")
    if not value:
        return {}
    if len(value) > entries:
        raise too_long(what, name, len(value), entries, "entries")
    for key, text in value.items():
        if type(key) is not str or type(text) is not str:
            raise FormatError(f"{what}: field {name!r} must be a map of texts", name)
        if len(key) > chars or len(text) > chars:
            raise too_long(what, name, max(len(key), len(text)), chars, "characters in an entry")
        check_utf8(what, name, key)
        check_utf8(what, name, text)
    return value


def check_utf8(what: str, name: str, value: str) -> None:
    """Check that a decoded text was valid UTF-8.

    Raises:
        FormatError: the text contains bytes that are not UTF-8.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{what}: field {name!r} is not UTF-8", name) from None


def wrong(what: str, name: str, value: object, expected: str) -> FormatError:
    """Return the error for a missing field, or for a value of another type."""
    if value is _REQUIRED:
        return FormatError(f"{what}: field {name!r} is missing, expected {expected}", name)
    return FormatError(f"{what}: field {name!r} is {_kind(value)}, expected {expected}", name)


def too_long(what: str, name: str, size: int, limit: int, unit: str) -> FormatError:
    """Return the error for a value that exceeds its limit."""
    return FormatError(f"{what}: field {name!r} has {size} {unit}, limit: {limit}", name)


def _kind(value: object) -> str:
    if value is None:
        return "nil"
    if type(value) is int:
        return f"the integer {value}"
    names = {str: "text", dict: "a map", list: "an array", float: "a float", bool: "a boolean"}
    return names.get(type(value), type(value).__name__)


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_CHARS])


def _place(field: object) -> str:
    return f"field {_shown(field)}" if isinstance(field, str) and field else "a key"
