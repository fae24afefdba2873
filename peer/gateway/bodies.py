"""The JSON of the queues: what programs and services write, and what they read.

Reading is tolerant where programs differ: fields in any order, unknown fields (Go sends `con`),
null or a missing field for what is optional, base64 without padding or in the URL alphabet, numbers
as floats or text. An unreadable entry raises BodyError, which includes the program to notify if
that much was readable. Writing is exact: all fields of rmb-peer 1.5, null where there is no value.
"""

from __future__ import annotations

import json
import math
import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from peer.gateway.bounds import (
    MAX_BODY_BYTES,
    MAX_COMMAND_BYTES,
    MAX_DESTINATIONS,
    MAX_REFERENCE_BYTES,
    MAX_RET_BYTES,
)
from proto.rmb import address
from proto.rmb.address import Address
from proto.rmb.bounds import MAX_TAGS_BYTES, MAX_TWIN, MAX_UID_BYTES
from proto.rmb.errors import CODE_OTHER, MAX_CODE, RmbError

REPLY_QUEUE: Final = "msgbus.system.reply"
MAX_SCHEMA_BYTES: Final = 256
MAX_MESSAGE_BYTES: Final = 16 * 1024
"""Maximum size of an error text, in bytes."""
MAX_SECONDS: Final = 2**53
"""Maximum accepted time or duration, in seconds; doubles are exact up to here."""

MAX_REST_BYTES: Final = 64 * 1024
"""Maximum size of an oversized entry without its payload, in bytes."""

_PAYLOAD: Final = re.compile(rb'"dat"\s*:\s*"[^"\\]*"')
_JSON_SPACE: Final = " \t\n\r"
_decode = json.JSONDecoder().raw_decode
_quote = json.encoder.encode_basestring_ascii
_TO_STANDARD: Final = str.maketrans("-_", "+/")


class BodyError(ValueError):
    """An entry of a system list that cannot be used.

    Attributes:
        ret: list of the program that waits for answers; "" if it could not be read.
        reference: the program's own reference, or for an answer the uid of the request.
        destination: for an otherwise unreadable answer: the twin to notify.
    """

    def __init__(
        self,
        problem: str,
        ret: str = "",
        reference: str | None = None,
        destination: Address | None = None,
    ) -> None:
        super().__init__(problem)
        self.ret = ret
        self.reference = reference
        self.destination = destination


class OutgoingRequest(NamedTuple):
    """A request that a program wants to send."""

    reference: str | None
    """The program's own reference, returned with each answer."""
    command: str
    expiration_s: int
    payload: bytes
    tags: str | None
    destinations: tuple[int, ...]
    """Ids of the receivers. A twin that is listed twice is asked twice, as by rmb-peer 1.5."""
    ret: str
    """List for the answers; "" if none are wanted."""
    schema: str | None
    timestamp: int


class Failure(NamedTuple):
    """The `err` field of an answer."""

    code: int
    message: str


class OutgoingResponse(NamedTuple):
    """A service's answer."""

    uid: str
    destination: Address
    payload: bytes
    schema: str | None
    timestamp: int
    failure: Failure | None


def read_request(raw: bytes) -> OutgoingRequest:
    """Parse an entry of `msgbus.system.local`.

    Raises:
        BodyError: the entry cannot be used.
    """
    fields = _read_bounded(raw)
    ret: str | None = None
    reference: str | None = None
    try:
        ret = _text(fields, "ret", MAX_RET_BYTES)
        reference = _text(fields, "ref", MAX_REFERENCE_BYTES)
        _check_size(raw)
        command = _text(fields, "cmd", MAX_COMMAND_BYTES)
        if not command:
            raise BodyError("cmd is missing")
        return OutgoingRequest(
            reference,
            command,
            _seconds(fields, "exp"),
            _payload(fields),
            _text(fields, "tag", MAX_TAGS_BYTES),
            _destinations(fields.get("dst")),
            ret or "",
            _text(fields, "shm", MAX_SCHEMA_BYTES),
            _seconds(fields, "now"),
        )
    except BodyError as error:
        error.ret, error.reference = ret or "", reference
        raise


def for_others(raw: bytes, destinations: Sequence[int], taken_at: int) -> bytes:
    """Return a copy of a readable entry of `msgbus.system.local` for other receivers.

    An entry without a time of its own gets the time at which it was taken, so that it does not live
    longer.
    """
    fields = _read_object(raw) | {"dst": list(destinations)}
    if not _seconds(fields, "now"):
        fields["now"] = taken_at
    return json.dumps(fields, separators=(",", ":")).encode()


def read_response(raw: bytes) -> OutgoingResponse:
    """Parse an entry of `msgbus.system.reply`.

    Raises:
        BodyError: the entry cannot be used.
    """
    fields = _read_bounded(raw)
    uid: str | None = None
    destination: Address | None = None
    try:
        uid = _text(fields, "ref", MAX_UID_BYTES)
        if not uid:
            raise BodyError("ref is missing")
        destination = _address(fields.get("dst"))
        _check_size(raw)
        failure = _failure(fields.get("err"))
        payload = _payload(fields) if failure is None else b""
        schema = _text(fields, "shm", MAX_SCHEMA_BYTES)
        return OutgoingResponse(uid, destination, payload, schema, _seconds(fields, "now"), failure)
    except BodyError as error:
        error.reference, error.destination = uid, destination
        raise


def incoming_request(
    uid: str,
    source: Address,
    command: str,
    payload: bytes,
    schema: str | None,
    tags: str | None,
    timestamp: int,
    expiration_s: int,
) -> bytes:
    """Return the JSON of an entry for a command's list."""
    return (
        f'{{"ver":1,"ref":{_quote(uid)},"src":{_quote(str(source))},"cmd":{_quote(command)},'
        f'"exp":{expiration_s},"dat":"{_base64(payload)}","tag":{_optional(tags)},'
        f'"ret":"{REPLY_QUEUE}","shm":{_optional(schema)},"now":{timestamp}}}'
    ).encode()


def incoming_response(
    reference: str | None,
    source: str,
    payload: bytes,
    schema: str | None,
    timestamp: int,
    failure: Failure | None = None,
) -> bytes:
    """Return the JSON of an entry for a `ret` list."""
    err = "null"
    if failure is not None:
        err = f'{{"code":{failure.code},"message":{_quote(failure.message)}}}'
    return (
        f'{{"ver":1,"ref":{_optional(reference)},"dat":"{_base64(payload)}",'
        f'"src":{_quote(source)},"shm":{_optional(schema)},"now":{timestamp},"err":{err}}}'
    ).encode()


def _base64(payload: bytes) -> str:
    return b2a_base64(payload, newline=False).decode("ascii")


def _optional(text: str | None) -> str:
    return "null" if text is None else _quote(text)


def _read_bounded(raw: bytes) -> dict[str, Any]:
    """Return the fields of an entry, without the payload if the entry is too large.

    The remaining fields say which program to notify. Cutting the payload out only needs a search
    for the next quote.
    """
    if len(raw) > MAX_BODY_BYTES:
        rest = _PAYLOAD.sub(b'"dat":null', raw, count=1)
        if len(rest) > MAX_REST_BYTES:
            _check_size(raw)
        raw = rest
    return _read_object(raw)


def _check_size(raw: bytes) -> None:
    if len(raw) > MAX_BODY_BYTES:
        raise BodyError(f"entry has {len(raw)} bytes, at most {MAX_BODY_BYTES} are allowed")


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode().strip(_JSON_SPACE)
        value, end = _decode(text)
        if end != len(text):
            raise ValueError("more follows")
    except (ValueError, RecursionError):
        raise BodyError("entry is not JSON") from None
    if not isinstance(value, dict):
        raise BodyError("entry is not a JSON object")
    return value


def _text(fields: dict[str, Any], name: str, bound_bytes: int) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BodyError(f"{name} is not text")
    try:
        size_bytes = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise BodyError(f"{name} is not valid Unicode") from None
    if size_bytes > bound_bytes:
        raise BodyError(f"{name} has {size_bytes} bytes, at most {bound_bytes} are allowed")
    return value


def _seconds(fields: dict[str, Any], name: str) -> int:
    """Return a time or duration; durations of the TypeScript client can have a fraction.

    A duration is rounded up: half a second must not become 0, which stands for the default.
    """
    value = fields.get(name)
    if type(value) is int and 0 <= value <= MAX_SECONDS:
        return value
    if value is None or value == "":
        return 0
    found = _number(value)
    if found is None or not 0 <= found <= MAX_SECONDS:
        raise BodyError(f"{name} is not a number of seconds")
    return math.ceil(found) if name == "exp" else int(found)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        # As text, only numbers that JSON accepts without quotes.
        found = json.loads(value) if isinstance(value, str) else value
        finite = not isinstance(found, float) or math.isfinite(found)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return found if finite else None


def _payload(fields: dict[str, Any]) -> bytes:
    value = fields.get("dat")
    if value is None:
        return b""
    if not isinstance(value, str):
        raise BodyError("dat is not text")
    try:
        return a2b_base64(value, strict_mode=True)
    except ValueError:  # also Base64Error
        pass
    text = "".join(value.split()).rstrip("=").translate(_TO_STANDARD)
    try:
        return a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except (Base64Error, ValueError):
        raise BodyError("dat is not base64") from None


def _destinations(value: object) -> tuple[int, ...]:
    entries = value if isinstance(value, list) else [value]
    if len(entries) > MAX_DESTINATIONS:
        raise BodyError(f"dst has {len(entries)} twins, at most {MAX_DESTINATIONS} are allowed")
    found = []
    for entry in entries:
        twin = entry if type(entry) is int else _number(entry)
        if twin is None or twin != int(twin) or not 0 < twin <= MAX_TWIN:
            raise BodyError("dst is not a list of twin ids")
        found.append(int(twin))
    if not found:
        raise BodyError("dst is empty")
    return tuple(found)


def _address(value: object) -> Address:
    text = str(value) if type(value) is int else value
    if not isinstance(text, str):
        raise BodyError("dst is not the address of a twin")
    try:
        found = address.parse(text)
    except RmbError as error:
        raise BodyError(f"dst: {error}") from None
    if not found.twin:
        raise BodyError("dst is twin 0, which does not exist")
    return found


def _failure(value: object) -> Failure | None:
    """Return the `err` of an answer: null, missing, or a code (Go 255, TypeScript 500) and text."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BodyError("err is not an object")
    code = value.get("code")
    if type(code) is not int or not 0 <= code <= MAX_CODE:
        code = CODE_OTHER
    message = _text(value, "message", MAX_MESSAGE_BYTES) or ""
    return Failure(code, message)
