"""Events of invocations, on their way from the processes of a lattice to the lake of the relay.

A process adds a row for each invocation that it makes, answers or sees, and hands rows over in
batches, each an entry of the stream `STREAM`. The compactor of the lake makes files of them and
removes them from the stream. What rows have in common stands once in a batch:

    shapes  JSON: a list of `Shape`s
    rows    `ROW`s, one after the other
    lost    rows that the process could not keep since the batch before
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
"""In the stream; while there are so many, processes keep their rows and count those they lose."""
MAX_ROWS: Final = 20_000
MAX_SHAPES: Final = 2_000
"""Of a batch, and as many more with `OTHERS` as there are kinds and reasons."""
MAX_OTHERS: Final = 500
MAX_TEXT_CHARS: Final = 128
MAX_SHAPES_CHARS: Final = 16 * 1024 * 1024
OTHERS: Final = "(others)"
"""In place of names, when there are too many."""

ROW: Final = Struct("<qqqIIII")
"""at_us, uid, latency_us, size_bytes, answer_bytes, twin, number of the shape; little-endian."""
NO_LATENCY: Final = -1
NO_SIZE: Final = 2**32 - 1
"""Of an answer that there is not."""
NO_TWIN: Final = 0

OK: Final = "none"
"""The reason of an invocation that went well, or that nothing is wrong with."""


class EventKind(StrEnum):
    """What happened."""

    OUT = "lattice_out"
    """The bridge called an actor or a provider for a twin."""
    IN = "lattice_in"
    """An actor called a twin over the bridge."""
    SEEN = "lattice_seen"
    """The monitor saw an invocation."""


class Shape(NamedTuple):
    """What many rows have in common; a text is empty where it is not known.

    Attributes:
        kind: an `EventKind`.
        origin: public key of the caller.
        target: public key of what is called.
        link: name of the link between an actor and a provider.
        contract: of the provider.
        operation: of the target.
        host_id: of the origin, as the invocation says.
        reason: `OK`, how the call failed, or what is wrong with the invocation.
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
        """Return the shape with texts of bounded length."""
        return Shape._make(text[:MAX_TEXT_CHARS] for text in self)

    def without_names(self) -> Shape:
        """Return the shape with `OTHERS` in place of the names."""
        return Shape._make([self.kind, *[OTHERS] * 6, self.reason])


class Batch(NamedTuple):
    """One entry of the stream.

    Attributes:
        shapes: by their numbers.
        rows: `ROW`s.
        lost: rows that were lost before.
    """

    shapes: Sequence[Shape]
    rows: bytes
    lost: int = 0

    def encode(self) -> dict[str, bytes | int]:
        """Return the fields of the entry."""
        shapes = json.dumps(self.shapes, ensure_ascii=False).encode(errors="replace")
        return {"shapes": shapes, "rows": self.rows, "lost": self.lost}


def decode_batch(fields: Mapping[bytes, bytes]) -> Batch:
    """Read the fields of an entry; numbers of shapes in rows are unchecked.

    Raises:
        FormatError: malformed, or beyond a bound.
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
    """Return the number by which rows of one invocation are known; 0 where there is no id."""
    if not invocation_id:
        return 0
    digest = blake2b(invocation_id.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
