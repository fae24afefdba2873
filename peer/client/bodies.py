"""Conversion of bodies between Python values, and payloads with content types.

Bytes are sent unchanged. None is an empty payload. Everything else is sent as JSON, with the
content type `application/json`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from peer.modules.api import JSON_SCHEMA, MAX_BODY_BYTES, NO_ANSWER, Answer, Response, _NoAnswer
from proto.rmb.address import Address


class Reply(NamedTuple):
    """A successful answer to a call.

    Attributes:
        payload: decrypted payload.
        schema: content type of the payload, None if the answer has none.
        source: address of the session that signed the answer.
    """

    payload: bytes
    schema: str | None
    source: Address

    def json(self) -> Any:
        """Return the value of a JSON payload; None for an empty payload.

        Raises:
            ValueError: the payload is not JSON.
        """
        try:
            return json.loads(self.payload) if self.payload else None
        except RecursionError:
            raise ValueError("the payload is nested too deeply") from None


def encode(body: Any, schema: str | None = None) -> Response:
    """Return the payload and the content type of a body.

    Args:
        body: the body, see the module's docstring.
        schema: content type; None: that of JSON if the body becomes JSON.

    Raises:
        TypeError: the body cannot be converted to JSON.
        ValueError: the body is too large, or JSON cannot represent a number in it.
    """
    if body is None:
        payload = b""
    elif isinstance(body, bytes | bytearray | memoryview):
        payload = bytes(body)
    else:
        payload = json.dumps(
            body, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode()
        schema = schema or JSON_SCHEMA
    if len(payload) > MAX_BODY_BYTES:
        raise ValueError(f"body has {len(payload)} bytes, at most {MAX_BODY_BYTES} are allowed")
    return Response(payload, schema)


def encode_answer(found: Any) -> Answer:
    """Convert a handler's return value to a response, or to no answer.

    Raises:
        TypeError: the value cannot be converted to JSON.
        ValueError: the value is too large, or JSON cannot represent a number in it.
    """
    if isinstance(found, _NoAnswer):
        return NO_ANSWER
    if isinstance(found, Response):
        return encode(found.payload, found.schema)
    return encode(found)
