"""Messages between hosts, actors and providers, and their msgpack encoding (sheet section 2).

Messages are written as the Rust peers write them, with the same order of fields. Every form that
one of these peers accepts can be read, within limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgpack

from proto.lattice.bounds import (
    CHUNK_THRESHOLD_BYTES,
    MAX_CONTROL_BYTES,
    MAX_ERROR_CHARS,
    MAX_ID_CHARS,
    MAX_LINK_VALUE_CHARS,
    MAX_LINK_VALUES,
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARS,
    MAX_OPERATION_CHARS,
    MAX_SENT_ERROR_CHARS,
    MAX_TOKEN_CHARS,
    MAX_TRACE_CHARS,
    MAX_TRACE_ENTRIES,
)
from proto.lattice.entity import Entity, entity_of
from proto.lattice.json_text import read_object
from proto.lattice.nkeys import KeyKind, decode_public
from proto.lattice.wire import (
    Record,
    bool_of,
    bytes_of,
    check_utf8,
    text_of,
    texts_of,
    too_long,
    uint_of,
    unpack_record,
    wrong,
)

_ENTITY: Final = ("public_key", "link_name", "contract_id")
_INVOCATION: Final = (
    *("origin", "target", "operation", "msg", "id", "encoded_claims", "host_id"),
    *("content_length", "traceContext"),
)
_RESPONSE: Final = ("msg", "invocation_id", "error", "content_length", "traceContext")
_LINK: Final = ("actor_id", "provider_id", "link_name", "contract_id", "values")
_HEALTH: Final = ("healthy", "message")
_MSG: Final = ("msg",)

_pack: Final = msgpack.packb


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call.

    Attributes:
        origin: entity that calls, as the sender claims.
        target: entity that is called.
        operation: name of the operation, as `Interface.Method`.
        msg: the payload; empty if it was moved to the object store.
        id: opaque id; also the name of the object.
        encoded_claims: the signed token.
        host_id: public key of the sending host (`N...`).
        content_length: size of the whole payload, in bytes.
        trace: W3C trace keys.
    """

    origin: Entity
    target: Entity
    operation: str
    msg: bytes
    id: str
    encoded_claims: str
    host_id: str
    content_length: int
    trace: Mapping[str, str] = field(default_factory=dict)

    @property
    def moved(self) -> bool:
        """Whether the payload is in the object store, under the name `id`."""
        return self.content_length > CHUNK_THRESHOLD_BYTES

    def encode(self) -> bytes:
        """Return the encoded message.

        Raises:
            KeyFormatError: `host_id` is not the public key of a host. A key that is too short
                crashes actors of real hosts, so it is never sent.
        """
        decode_public(self.host_id, KeyKind.HOST)
        return _packed(
            {
                "origin": _entity_record(self.origin),
                "target": _entity_record(self.target),
                "operation": self.operation,
                "msg": self.msg,
                "id": self.id,
                "encoded_claims": self.encoded_claims,
                "host_id": self.host_id,
                "content_length": self.content_length,
                "traceContext": dict(self.trace),
            }
        )


@dataclass(frozen=True, slots=True)
class InvocationResponse:
    """The answer to a call.

    Attributes:
        invocation_id: id of the call.
        msg: the result; empty if it was moved to the object store, or the call failed.
        error: error text; None: the call succeeded. Any text, even an empty one, is a failure.
        content_length: size of the whole result, in bytes; None: not stated.
        trace: W3C trace keys.
    """

    invocation_id: str
    msg: bytes = b""
    error: str | None = None
    content_length: int | None = None
    trace: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def success(cls, invocation_id: str, payload: bytes) -> InvocationResponse:
        """Return the answer with a result; one above the threshold must be stored before."""
        moved = len(payload) > CHUNK_THRESHOLD_BYTES
        return cls(invocation_id, b"" if moved else payload, None, len(payload))

    @classmethod
    def failure(cls, invocation_id: str, error: str) -> InvocationResponse:
        """Return the answer to a call that failed; the text is cut to `MAX_SENT_ERROR_CHARS`."""
        return cls(invocation_id, b"", error[:MAX_SENT_ERROR_CHARS], 0)

    @property
    def size_bytes(self) -> int:
        """Size of the whole result, in bytes."""
        return len(self.msg) if self.content_length is None else self.content_length

    @property
    def moved(self) -> bool:
        """Whether the result is in the object store, under the name `response_object_name`."""
        return self.size_bytes > CHUNK_THRESHOLD_BYTES

    def encode(self) -> bytes:
        """Return the encoded message."""
        record: Record = {"msg": self.msg, "invocation_id": self.invocation_id}
        if self.error is not None:
            record["error"] = self.error
        record["content_length"] = self.size_bytes
        record["traceContext"] = dict(self.trace)
        return _packed(record)


@dataclass(frozen=True, slots=True)
class LinkDefinition:
    """A link: permits an actor to call a provider, with settings for these calls.

    Attributes:
        actor_id: public key of the actor (`M...`).
        provider_id: public key of the provider (`V...`).
        link_name: link name of the provider.
        contract_id: contract of the provider.
        values: settings by name.
    """

    actor_id: str
    provider_id: str
    link_name: str
    contract_id: str
    values: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the encoded message."""
        return _packed(self.to_record())

    def to_record(self) -> Record:
        """Return the fields in their order, for msgpack and JSON."""
        return {
            "actor_id": self.actor_id,
            "provider_id": self.provider_id,
            "link_name": self.link_name,
            "contract_id": self.contract_id,
            "values": dict(self.values),
        }


@dataclass(frozen=True, slots=True)
class HealthCheckResponse:
    """Health of a provider.

    Attributes:
        healthy: whether it can serve calls.
        message: why it cannot.
    """

    healthy: bool
    message: str | None = None

    def encode(self) -> bytes:
        """Return the encoded message."""
        record: Record = {"healthy": self.healthy}
        if self.message is not None:
            record["message"] = self.message
        return _packed(record)


def decode_invocation(data: bytes) -> Invocation:
    """Read a call.

    Raises:
        FormatError: the message is malformed, or exceeds a limit.
    """
    what = "invocation"
    record = unpack_record(data, what, _INVOCATION, _MSG)
    return Invocation(
        _entity(record, what, "origin"),
        _entity(record, what, "target"),
        text_of(record, what, "operation", MAX_OPERATION_CHARS),
        bytes_of(record, what, "msg", MAX_MESSAGE_BYTES),
        text_of(record, what, "id", MAX_ID_CHARS),
        text_of(record, what, "encoded_claims", MAX_TOKEN_CHARS),
        text_of(record, what, "host_id", MAX_NAME_CHARS),
        uint_of(record, what, "content_length"),
        _trace(record, what),
    )


def decode_response(data: bytes) -> InvocationResponse:
    """Read the answer to a call.

    Raises:
        FormatError: the message is malformed, or exceeds a limit.
    """
    what = "invocation response"
    record = unpack_record(data, what, _RESPONSE, _MSG)
    return InvocationResponse(
        text_of(record, what, "invocation_id", MAX_ID_CHARS),
        bytes_of(record, what, "msg", MAX_MESSAGE_BYTES),
        _optional_text(record, what, "error"),
        uint_of(record, what, "content_length") if "content_length" in record else None,
        _trace(record, what),
    )


def decode_link(data: bytes) -> LinkDefinition:
    """Read a link.

    Raises:
        FormatError: the message is malformed, or exceeds a limit.
    """
    return link_of_record(unpack_record(data, "link definition", _LINK, ()))


def link_of_record(record: Record) -> LinkDefinition:
    """Read a link from the fields of a msgpack or JSON record.

    Raises:
        FormatError: the record is malformed, or exceeds a limit.
    """
    what = "link definition"
    return LinkDefinition(
        text_of(record, what, "actor_id", MAX_NAME_CHARS),
        text_of(record, what, "provider_id", MAX_NAME_CHARS),
        text_of(record, what, "link_name", MAX_NAME_CHARS),
        text_of(record, what, "contract_id", MAX_NAME_CHARS),
        texts_of(record, what, "values", MAX_LINK_VALUES, MAX_LINK_VALUE_CHARS),
    )


def decode_health(data: bytes) -> HealthCheckResponse:
    """Read a provider's answer to a health check.

    Raises:
        FormatError: the message is malformed, or exceeds a limit.
    """
    what = "health check response"
    record = unpack_record(data, what, _HEALTH, ())
    return HealthCheckResponse(
        bool_of(record, what, "healthy"), _optional_text(record, what, "message")
    )


def decode_shutdown(data: bytes) -> str:
    """Return the id of the host that asks a provider to stop; only the provider's own host may.

    Raises:
        FormatError: the message is malformed.
    """
    record = read_object(data, "shutdown request", MAX_CONTROL_BYTES)
    return text_of(record, "shutdown request", "host_id", MAX_NAME_CHARS)


def response_object_name(invocation_id: str) -> str:
    """Return the name of a moved result in the object store."""
    return f"{invocation_id}-r"


def _packed(record: Record) -> bytes:
    data: bytes = _pack(record)
    return data


def _entity_record(entity: Entity) -> Record:
    return {
        "public_key": entity.public_key,
        "link_name": entity.link_name,
        "contract_id": entity.contract_id,
    }


def _entity(record: Record, what: str, name: str) -> Entity:
    value = record.get(name)
    if type(value) is list and len(value) <= len(_ENTITY):
        value = dict(zip(_ENTITY, value, strict=False))
    elif type(value) is not dict:
        raise wrong(what, name, value, "a map")
    what = f"{what}: {name}"
    return entity_of(
        text_of(value, what, "public_key", MAX_NAME_CHARS, None),
        text_of(value, what, "link_name", MAX_NAME_CHARS),
        text_of(value, what, "contract_id", MAX_NAME_CHARS),
    )


def _trace(record: Record, what: str) -> Mapping[str, str]:
    return texts_of(record, what, "traceContext", MAX_TRACE_ENTRIES, MAX_TRACE_CHARS, {})


def _optional_text(record: Record, what: str, name: str) -> str | None:
    value = record.get(name)
    if value is None:
        return None
    if type(value) is not str:
        raise wrong(what, name, value, "text or nil")
    if len(value) > MAX_ERROR_CHARS:
        raise too_long(what, name, len(value), MAX_ERROR_CHARS, "characters")
    check_utf8(what, name, value)
    return value
