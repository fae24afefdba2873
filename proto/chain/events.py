"""Events of a block that concern twins, as records of the storage value System.Events.

The value is a vector of records `phase, event, topics`. The phase is a byte 0 and the number of the
transaction, or a byte 1 or 2 for the end and the beginning of the block. An event is `pallet,
number, fields`. TwinStored and TwinUpdated have one field, the whole `Twin`, so a cache can be kept
up to date without further queries.

Only the metadata knows the length of other events, so iterating over the value is left to the
caller. This module writes records, and reads the record that begins at a given offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from proto.chain import scale, twin
from proto.chain.bounds import MAX_EVENTS_BYTES
from proto.chain.errors import BoundError, ScaleError
from proto.chain.scale import Reader
from proto.chain.twin import Twin

TWIN_STORED: Final = "TwinStored"
TWIN_UPDATED: Final = "TwinUpdated"

_APPLY_EXTRINSIC: Final = 0
_PHASES: Final = 3
_NO_TOPICS: Final = b"\0"


class TwinChange(NamedTuple):
    """A twin as announced by an event."""

    twin: Twin
    created: bool
    """Whether the event was TwinStored rather than TwinUpdated."""


def encode_record(index: bytes, fields: bytes, extrinsic: int) -> bytes:
    """Return the record of an event that a transaction caused.

    Args:
        index: two bytes, pallet and event, from the metadata.
        fields: the event's fields, encoded.
        extrinsic: number of the transaction in its block.
    """
    phase = bytes([_APPLY_EXTRINSIC]) + scale.u32("extrinsic", extrinsic)
    return phase + scale.fixed("event", index, 2) + fields + _NO_TOPICS


def encode_block(records: Sequence[bytes]) -> bytes:
    """Return the value of System.Events for a block with these records.

    Raises:
        BoundError: the value is above `MAX_EVENTS_BYTES`.
    """
    value = scale.compact("events", len(records)) + b"".join(records)
    if len(value) > MAX_EVENTS_BYTES:
        raise BoundError("events", len(value), MAX_EVENTS_BYTES)
    return value


def count(value: bytes) -> int:
    """Return the number of records that a value declares.

    Raises:
        ScaleError: not a vector, or more records than its bytes have room for.
    """
    reader = Reader(value)
    records = reader.compact("events", MAX_EVENTS_BYTES, "items")
    if records > len(value):
        raise ScaleError("events", f"{records} records do not fit in {len(value)} bytes")
    return records


def read_twin_record(
    value: bytes, offset: int, stored: bytes | None, updated: bytes | None
) -> TwinChange | None:
    """Return the change in the record that begins at `offset`, or None if it is another event.

    Args:
        value: the value of System.Events.
        offset: position at which a record begins.
        stored: two bytes, pallet and event of TwinStored; None if the runtime has no such event.
        updated: the same for TwinUpdated.

    Raises:
        ScaleError: no record begins there, or its twin is invalid.
        BoundError: a field of the twin is above its bound.
    """
    reader = Reader(value, offset)
    phase = reader.u8("event.phase")
    if phase >= _PHASES:
        raise ScaleError("event.phase", f"must be below {_PHASES}, not {phase}")
    if phase == _APPLY_EXTRINSIC:
        reader.u32("event.phase")
    index = reader.fixed("event", 2)
    if index not in (stored, updated):
        return None
    return TwinChange(twin.read(reader), created=index == stored)
