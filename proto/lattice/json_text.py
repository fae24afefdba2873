"""Strict reading of received JSON: within limits, in UTF-8, and without repeated keys."""

from __future__ import annotations

import json
from typing import Any

from proto.lattice.errors import FormatError
from proto.lattice.wire import Record, text_of, wrong


def read_json(data: str | bytes, what: str, limit: int) -> Any:
    """Read a JSON value.

    Args:
        data: JSON in UTF-8, or as text.
        what: name of the data, for errors.
        limit: maximum size in bytes, or in characters of a text.

    Raises:
        FormatError: the data is too long, or not JSON.
    """
    if len(data) > limit:
        raise FormatError(f"{what} of {len(data)} bytes, limit: {limit} bytes")
    try:
        text = data if isinstance(data, str) else data.decode()
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise FormatError(f"{what}: invalid JSON: {reason!s:.100}") from None


def read_object(data: str | bytes, what: str, limit: int) -> Record:
    """Read a JSON object.

    Raises:
        FormatError: the data is too long, or not a JSON object.
    """
    record = read_json(data, what, limit)
    if type(record) is not dict:
        raise FormatError(f"{what}: expected a JSON object")
    return record


def write_json(value: Any) -> bytes:
    """Return compact JSON, as Rust peers write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def text_or_null(record: Record, what: str, name: str, limit: int) -> str:
    """Return a text field; an empty text if the field is missing or null.

    Raises:
        FormatError: the field is of another type, or too long.
    """
    return "" if record.get(name) is None else text_of(record, what, name, limit)


def list_of(record: Record, what: str, name: str, limit: int, default: object = None) -> list[Any]:
    """Return a list field.

    Raises:
        FormatError: the field is missing without a default, of another type, or too long.
    """
    value = record.get(name, default)
    if type(value) is not list:
        raise wrong(what, name, value, "a list")
    if len(value) > limit:
        raise FormatError(f"{what}: field {name!r} has {len(value)} items, limit: {limit}", name)
    return value


def records_of(
    record: Record, what: str, name: str, limit: int, default: object = None
) -> list[Record]:
    """Return a field that is a list of objects.

    Raises:
        FormatError: the field is missing without a default, of another type, or too long.
    """
    items = list_of(record, what, name, limit, default)
    if not {dict}.issuperset(map(type, items)):
        raise FormatError(f"{what}: field {name!r} must be a list of objects", name)
    return items


def strings_of(
    record: Record, what: str, name: str, limit: int, chars: int, default: object = None
) -> tuple[str, ...]:
    """Return a field that is a list of texts.

    Raises:
        FormatError: the field is missing without a default, of another type, or too long.
    """
    items = list_of(record, what, name, limit, default)
    if not {str}.issuperset(map(type, items)):
        raise FormatError(f"{what}: field {name!r} must be a list of texts", name)
    if any(len(item) > chars for item in items):
        raise FormatError(
            f"{what}: a text of field {name!r} has more than {chars} characters", name
        )
    return tuple(items)


def _unique(pairs: list[tuple[str, Any]]) -> Record:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record
