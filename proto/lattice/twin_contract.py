"""Payloads of the contract `rmb:twin`, with which actors and twins call each other over the bridge.

    Twin.Call                  TwinRequest -> TwinReply      an actor sends a request to a twin
    Twin.Send                  TwinRequest -> uid            an actor sends a message to a twin
    TwinHandler.HandleRequest  TwinRequest -> TwinReply      a twin sends a request to an actor

All are msgpack maps with the keys in brackets; optional ones may be nil or missing, and unknown
ones are ignored. `data` is `bin`; text and arrays of integers are accepted too.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgpack

from proto.identity.bounds import MAX_TWIN
from proto.lattice.errors import FormatError
from proto.lattice.policy import MAX_BYTES, MAX_TIMEOUT_MS
from proto.rmb.bounds import MAX_CONNECTION_BYTES

CONTRACT: Final = "rmb:twin"
CALL: Final = "Twin.Call"
SEND: Final = "Twin.Send"
HANDLE_REQUEST: Final = "TwinHandler.HandleRequest"

MAX_COMMAND_CHARS: Final = 256
MAX_SCHEMA_CHARS: Final = 256
_MAX_KEYS: Final = 32


class TwinRequest(NamedTuple):
    """A request to or from a twin.

    Attributes:
        twin: number of the called twin, or of the calling one (`twin`).
        command: RMB command (`command`).
        data: payload (`data`).
        session: session of the twin; None: the one without an id (`session`).
        schema: content type of the payload (`schema`).
        timeout_ms: time-out of the caller (`timeoutMs`); 0: not given.
    """

    twin: int
    command: str
    data: bytes = b""
    session: str | None = None
    schema: str | None = None
    timeout_ms: int = 0


class TwinReply(NamedTuple):
    """A successful answer: payload (`data`) and its content type (`schema`)."""

    data: bytes = b""
    schema: str | None = None


def encode_request(request: TwinRequest) -> bytes:
    """Encode a request."""
    return _pack(
        {
            "twin": request.twin,
            "session": request.session,
            "command": request.command,
            "data": request.data,
            "schema": request.schema,
            "timeoutMs": request.timeout_ms,
        }
    )


def decode_request(data: bytes) -> TwinRequest:
    """Decode a request.

    Raises:
        FormatError: the data is not a request, or a field is out of bounds.
    """
    found = _unpack(data)
    return TwinRequest(
        _integer(found, "twin", 1, MAX_TWIN),
        _text(found, "command", MAX_COMMAND_CHARS, least=1),
        _bytes(found, "data"),
        _optional(found, "session", MAX_CONNECTION_BYTES),
        _optional(found, "schema", MAX_SCHEMA_CHARS),
        _integer(found, "timeoutMs", 0, MAX_TIMEOUT_MS, default=0),
    )


def encode_reply(reply: TwinReply) -> bytes:
    """Encode an answer."""
    return _pack({"data": reply.data, "schema": reply.schema})


def decode_reply(data: bytes) -> TwinReply:
    """Decode an answer; no data at all, or nil, is an empty one.

    Raises:
        FormatError: the data is not an answer, or a field is out of bounds.
    """
    if data in (b"", b"\xc0"):
        return TwinReply()
    found = _unpack(data)
    return TwinReply(_bytes(found, "data"), _optional(found, "schema", MAX_SCHEMA_CHARS))


def encode_uid(uid: str) -> bytes:
    """Encode the answer to `Twin.Send`."""
    return _pack(uid)


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def _unpack(data: bytes) -> dict[bytes, Any]:
    if len(data) > MAX_BYTES:
        raise FormatError(f"the payload has {len(data)} bytes, at most {MAX_BYTES} are allowed")
    try:
        found = msgpack.unpackb(
            data,
            raw=True,
            strict_map_key=True,
            max_map_len=_MAX_KEYS,
            max_array_len=MAX_BYTES,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        reason = str(error)[:100] or type(error).__name__
        raise FormatError(f"the payload is not msgpack: {reason}") from None
    if not isinstance(found, dict):
        raise FormatError("the payload is not a map")
    return found


def _integer(
    found: dict[bytes, Any], field: str, least: int, most: int, default: int | None = None
) -> int:
    value = found.get(field.encode(), default)
    if value is None and default is not None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FormatError(f"{field}: must be an integer from {least} to {most}", field)
    return value


def _text(found: dict[bytes, Any], field: str, most: int, least: int = 0) -> str:
    value = found.get(field.encode())
    try:
        text = value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError:
        text = None
    if text is None or not least <= len(text) <= most:
        raise FormatError(f"{field}: must be a text of {least} to {most} characters", field)
    return text


def _optional(found: dict[bytes, Any], field: str, most: int) -> str | None:
    return None if found.get(field.encode()) is None else _text(found, field, most)


def _bytes(found: dict[bytes, Any], field: str) -> bytes:
    value = found.get(field.encode(), b"")
    if isinstance(value, list):
        try:
            value = bytes(value)
        except (ValueError, TypeError):
            value = None
    if not isinstance(value, bytes):
        raise FormatError(f"{field}: must be bytes", field)
    return value
