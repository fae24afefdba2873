"""State of an upload that a receiver keeps on disk, so that it can resume after a crash.

OPEN    chunks arrive; the file itself stores how many there are
MOVING  all chunks are written and checked; the file is being renamed to its final name
MOVED   the file has its final name; the command on arrival may not have been called yet
DONE    nothing is left to do; kept for a while to answer a sender that asks again
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from proto.files.errors import FileError, RefusedError
from proto.files.messages import Offer, offer_from_json
from proto.rmb.address import Address


class RecordError(FileError):
    """The bytes are not a record."""


class Stage(Enum):
    """Progress of an upload."""

    OPEN = "open"
    MOVING = "moving"
    MOVED = "moved"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Record:
    """The stored state of one upload."""

    id: str
    source: Address
    """Session that made the latest offer."""
    offer: Offer
    stage: Stage = Stage.OPEN
    at: float = 0.0
    """Time of the stage, in Unix seconds."""
    target: tuple[int, int, int] | None = None
    """Inode, size and modification time of the finished file, to detect whether it still exists."""
    sha256: str = ""
    """Checksum of the received file."""

    @property
    def name(self) -> str:
        """Name of the finished file: that of the offer, or the id if it has none."""
        return self.offer.name or self.id

    def at_stage(self, stage: Stage, at: float, **changes: Any) -> Record:
        """Return the record of the next stage."""
        return replace(self, stage=stage, at=at, **changes)


def encode_record(record: Record) -> bytes:
    """Return the bytes that are written to disk."""
    fields = asdict(record) | {
        "offer": record.offer.to_json(),
        "stage": record.stage.value,
        "source": [record.source.twin, record.source.connection],
    }
    return json.dumps(fields).encode()


def parse_record(data: bytes) -> Record:
    """Parse a record from disk.

    Raises:
        RecordError: the record is damaged.
    """
    try:
        fields = json.loads(data)
        target = fields["target"]
        return Record(
            id=str(fields["id"]),
            source=Address(int(fields["source"][0]), _connection(fields["source"][1])),
            offer=offer_from_json(fields["offer"]),
            stage=Stage(fields["stage"]),
            at=float(fields["at"]),
            target=None if target is None else (int(target[0]), int(target[1]), int(target[2])),
            sha256=str(fields["sha256"]),
        )
    except (
        *(ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError),
        RefusedError,
    ) as error:
        raise RecordError(f"record of an upload is damaged: {error}") from None


def _connection(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("connection must be text")
    return value
