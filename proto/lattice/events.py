"""Events that hosts publish: CloudEvents 1.0 in JSON (sheet section 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from proto.lattice.bounds import MAX_EVENT_BYTES, MAX_NAME_CHARS
from proto.lattice.errors import FormatError
from proto.lattice.json_text import read_object, text_or_null
from proto.lattice.wire import text_of, wrong

TYPE_PREFIX: Final = "com.wasmcloud.lattice."
SPEC_VERSION: Final = "1.0"
_WHAT: Final = "event"


class EventName(StrEnum):
    """Names of the events of interest; hosts publish others too."""

    HOST_STARTED = "host_started"
    HOST_STOPPED = "host_stopped"
    HOST_HEARTBEAT = "host_heartbeat"
    ACTOR_SCALED = "actor_scaled"
    ACTORS_STARTED = "actors_started"
    PROVIDER_STARTED = "provider_started"
    PROVIDER_STOPPED = "provider_stopped"
    PROVIDER_START_FAILED = "provider_start_failed"
    HEALTH_CHECK_PASSED = "health_check_passed"
    HEALTH_CHECK_FAILED = "health_check_failed"
    HEALTH_CHECK_STATUS = "health_check_status"
    LINKDEF_SET = "linkdef_set"
    LINKDEF_DELETED = "linkdef_deleted"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a lattice; events are not signed.

    Attributes:
        name: an `EventName`, or another name.
        source: public key of the host (`N...`).
        id: id of the event.
        time: time as text (RFC 3339).
        data: data of the event.
    """

    name: str
    source: str
    id: str
    time: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def decode_event(data: bytes) -> Event:
    """Read an event.

    Raises:
        FormatError: the message is malformed, or not an event of a lattice.
    """
    record = read_object(data, _WHAT, MAX_EVENT_BYTES)
    version = text_of(record, _WHAT, "specversion", MAX_NAME_CHARS)
    if version != SPEC_VERSION:
        raise FormatError(
            f"{_WHAT}: CloudEvents {version!r}, expected {SPEC_VERSION!r}", "specversion"
        )
    kind = text_of(record, _WHAT, "type", MAX_NAME_CHARS)
    if not kind.startswith(TYPE_PREFIX) or kind == TYPE_PREFIX:
        raise FormatError(f"{_WHAT}: type {kind!r}, expected {TYPE_PREFIX}<name>", "type")
    content = record.get("data", {})
    if type(content) is not dict:
        raise wrong(_WHAT, "data", content, "an object")
    return Event(
        kind.removeprefix(TYPE_PREFIX),
        text_of(record, _WHAT, "source", MAX_NAME_CHARS, None),
        text_of(record, _WHAT, "id", MAX_NAME_CHARS, None),
        text_or_null(record, _WHAT, "time", MAX_NAME_CHARS),
        content,
    )
