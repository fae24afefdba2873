"""Events of invocations, on their way from the processes of a lattice to the lake of the relay.

A process adds a row for each invocation that it makes, answers or sees, and sends rows in batches,
each of which is one entry of the stream `STREAM`. The compactor of the lake writes them to files
and removes them from the stream. Fields that rows have in common occur once in a batch:

    shapes  JSON: a list of `Shape`s
    rows    `ROW`s, one after the other
    lost    number of rows that the process had to discard since the batch before
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from proto.lattice.errors import FormatError
from proto.lattice.json_text import read_json

STREAM: Final = "relay:lattice:events"
MAX_BATCHES: Final = 60
"""Maximum number of batches in the stream; while it is full, processes keep their rows, and count
those that they lose."""
MAX_ROWS: Final = 20_000
MAX_SHAPES: Final = 2_000
"""Maximum number of shapes of a batch; shapes with `OTHERS` come on top, one for each kind and
reason."""
MAX_OTHERS: Final = 500
MAX_TEXT_CHARS: Final = 128
MAX_SHAPES_CHARS: Final = 16 * 1024 * 1024
OTHERS: Final = "(others)"
"""Text that replaces names when there are too many."""

ROW: Final = Struct("<qqqIIII")
"""Little-endian: at_us, uid, latency_us, size_bytes, answer_bytes, twin, number of the shape."""
NO_LATENCY: Final = -1
NO_SIZE: Final = 2**32 - 1
"""Value of `answer_bytes` if the call has no answer."""
NO_TWIN: Final = 0

OK: Final = "none"
"""Reason of an invocation that succeeded, or with which nothing is wrong."""


class EventKind(StrEnum):
    """Kind of an event."""

    OUT = "lattice_out"
    """The bridge called an actor or a provider for a twin."""
    IN = "lattice_in"
    """An actor called a twin over the bridge."""
    SEEN = "lattice_seen"
    """The monitor saw an invocation."""


class Shape(NamedTuple):
    """Fields that many rows have in common; a text is empty if it is unknown.

    Attributes:
        kind: an `EventKind`.
        origin: public key of the caller.
        target: public key of the called entity.
        link: name of the link between an actor and a provider.
        contract: contract of the provider.
        operation: operation of the target.
        host_id: host id of the origin, as the invocation claims.
        reason: `OK`, why the call failed, or what is wrong with the invocation.
    """

    kind: str
    origin: str = ""
    target: str = ""
    link: str = ""
    contract: str = ""
    operation: str = ""
    host_id: str = ""
    reason: str = OK

    def cut(self) -> Shape:
        """Return the shape with each text cut to `MAX_TEXT_CHARS`."""
        return Shape._make(text[:MAX_TEXT_CHARS] for text in self)

    def without_names(self) -> Shape:
        """Return the shape with its names replaced by `OTHERS`."""
        return Shape._make([self.kind, *[OTHERS] * 6, self.reason])


class Batch(NamedTuple):
    """One entry of the stream.

    Attributes:
        shapes: shapes in the order of their numbers.
        rows: the packed `ROW`s.
        lost: number of rows that were lost before this batch.
    """

    shapes: Sequence[Shape]
    rows: bytes
    lost: int = 0

    def encode(self) -> dict[str, bytes | int]:
        """Return the fields of the entry."""
        shapes = json.dumps(self.shapes, ensure_ascii=False).encode(errors="replace")
        return {"shapes": shapes, "rows": self.rows, "lost": self.lost}


def decode_batch(fields: Mapping[bytes, bytes]) -> Batch:
    """Read the fields of an entry; the shape numbers in rows are not checked.

    Raises:
        FormatError: the entry is malformed, or exceeds a limit.
    """
    rows = fields.get(b"rows", b"")
    if len(rows) % ROW.size or len(rows) > MAX_ROWS * ROW.size:
        raise FormatError(f"Batch: {len(rows)} bytes are not up to {MAX_ROWS} rows", "rows")
    found = read_json(fields.get(b"shapes", b""), "Batch", MAX_SHAPES_CHARS)
    if type(found) is not list or len(found) > MAX_SHAPES + MAX_OTHERS:
        raise FormatError(f"Batch: expected a list of at most {MAX_SHAPES} shapes", "shapes")
    shapes = []
    for each in found:
        if type(each) is not list or [type(text) for text in each] != [str] * len(Shape._fields):
            raise FormatError(f"Batch: expected {len(Shape._fields)} texts of each shape", "shapes")
        shapes.append(Shape(*each).cut())
    lost = fields.get(b"lost", b"0")
    if not lost.isdigit() or len(lost) > 18:
        raise FormatError("Batch: expected a number of lost rows", "lost")
    return Batch(shapes, rows, int(lost))


def uid_of(invocation_id: str) -> int:
    """Return the number that identifies an invocation in rows; 0 if there is no id."""
    if not invocation_id:
        return 0
    digest = blake2b(invocation_id.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
