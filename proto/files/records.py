"""What a receiver keeps of an upload on disk, so that it goes on after a kill.

OPEN    chunks come; how many are there stands in the file itself
MOVING  everything is there and checked; the file gets its name now
MOVED   it has its name; the command on arrival may not be called yet
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
    """The bytes are no record."""


class Stage(Enum):
    """How far an upload is."""

    OPEN = "open"
    MOVING = "moving"
    MOVED = "moved"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Record:
    """One upload."""

    id: str
    source: Address
    """Who offered it last."""
    offer: Offer
    stage: Stage = Stage.OPEN
    at: float = 0.0
    """Unix seconds of the stage."""
    target: tuple[int, int, int] | None = None
    """Of the finished file: inode, size, time of change; tells whether it is still there."""
    sha256: str = ""
    """Of what arrived."""

    @property
    def name(self) -> str:
        """Of the finished file; the owner gives one to an offer that has none."""
        return self.offer.name or self.id

    def at_stage(self, stage: Stage, at: float, **changes: Any) -> Record:
        """Returns the record of the next stage."""
        return replace(self, stage=stage, at=at, **changes)


def encode_record(record: Record) -> bytes:
    """What is written to disk."""
    fields = asdict(record) | {
        "offer": record.offer.to_json(),
        "stage": record.stage.value,
        "source": [record.source.twin, record.source.connection],
    }
    return json.dumps(fields).encode()


def parse_record(data: bytes) -> Record:
    """Reads it.

    Raises:
        RecordError: it is damaged.
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
