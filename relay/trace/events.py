"""Events of a trace: what is known of one message at one moment, only from its header."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from typing import Any, Final, NamedTuple

from relay.trace.bounds import MAX_TEXT_CHARS


class Stage(StrEnum):
    """Stages of a message, in the order in which it passes them."""

    WAITS = "waits"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    REFUSED = "refused"
    COMMITTED = "committed"
    QUEUED = "queued"
    OUTBOX = "outbox"
    TRIED = "tried"
    MOVED = "moved"
    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    REMOVED = "removed"
    EXPIRED = "expired"
    TRIMMED = "trimmed"
    PURGED = "purged"
    GIVEN_UP = "given_up"
    NOTIFIED = "notified"


MEANINGS: Final[dict[Stage, str]] = {
    Stage.WAITS: "passed the checks; its destination is looked up",
    Stage.ACCEPTED: "passed the checks, and is in the batch that fills",
    Stage.DECLINED: "another relay brought it, and was told to come again",
    Stage.REFUSED: "ended undelivered",
    Stage.COMMITTED: "Redis has the batch: it is in the queue of its session",
    Stage.QUEUED: "waits in the queue: this worker cannot deliver it now",
    Stage.OUTBOX: "Redis has the batch: it is in the outbox for other relays",
    Stage.TRIED: "was sent to another relay; the time is that of the request",
    Stage.MOVED: "its twin has moved here: into the queue of its session",
    Stage.DELIVERED: "written to the socket of its session",
    Stage.ACKNOWLEDGED: "the peer's TCP has its bytes",
    Stage.REMOVED: "no longer in the queue",
    Stage.EXPIRED: "its deadline passed while it waited",
    Stage.TRIMMED: "left the queue: nobody fetched it within the retention",
    Stage.PURGED: "left the queue: an operator deleted it",
    Stage.GIVEN_UP: "is a dead letter now",
    Stage.NOTIFIED: "its sender is told that it ended undelivered",
}


class Event(NamedTuple):
    """One event.

    Attributes:
        at: unix time by the clock of the process.
        by: name of the process.
        here: name of the relay of the process.
        stage: what happened.
        uid, source, destination, size_bytes, kind: from the envelope; addresses as
            `<twin>[:<session id>]`, the kind is the name of what it carries.
        reason: why it ended, or waits.
        epoch: epoch of the session to which it was delivered.
        entry: id in the stream of its queue, or of the outbox.
        batch: number of the group commit in the process.
        relay: partner relay that it came from, or was sent to.
        answer: answer of the partner relay.
        ms: milliseconds that the group commit or the partner relay's answer took.
        order: id of the order that follows the message.
    """

    at: float
    by: str
    here: str
    stage: Stage
    uid: str
    source: str
    destination: str
    size_bytes: int
    kind: str
    reason: str = ""
    epoch: int = 0
    entry: str = ""
    batch: int = 0
    relay: str = ""
    answer: str = ""
    ms: float = 0.0
    order: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields that are not empty, by name."""
        return {name: value for name, value in zip(NAMES, self, strict=True) if value}

    def encode(self) -> str:
        """Encode the event for Redis, as JSON without empty fields and without the order."""
        return json.dumps(self.fields(), separators=(",", ":"))


NAMES: Final = Event._fields
_NUMBERS: Final = frozenset(("at", "ms"))
_WHOLE: Final = frozenset(("size_bytes", "epoch", "batch"))


class EventError(ValueError):
    """The data is not a valid event."""


def decode(text: str | bytes, order: str = "") -> Event:
    """Decode an event of this relay, or of a partner relay.

    Raises:
        EventError: it is not a valid event.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise EventError("not JSON") from error
    return from_fields(found, order)


def from_fields(found: Any, order: str = "") -> Event:
    """Create an event from its fields; unknown fields are ignored.

    Raises:
        EventError: it is not a valid event.
    """
    if not isinstance(found, dict):
        raise EventError("not an object")
    values: dict[str, Any] = {
        "at": 0.0, "by": "", "here": "", "uid": "", "source": "", "destination": "",
        "size_bytes": 0, "kind": "",
    }  # fmt: skip
    for name in NAMES:
        if name not in found or name == "stage":
            continue
        value = found[name]
        if name not in _NUMBERS and name not in _WHOLE:
            if not isinstance(value, str):
                raise EventError(f"{name} is not a text")
            values[name] = value[:MAX_TEXT_CHARS]
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise EventError(f"{name} is not a number")
        else:
            if not math.isfinite(value):
                raise EventError(f"{name} is not a number")
            values[name] = int(value) if name in _WHOLE else float(value)
    try:
        values["stage"] = Stage(found.get("stage", ""))
    except ValueError as error:
        raise EventError("an unknown stage") from error
    if order:
        values["order"] = order
    return Event(**values)
