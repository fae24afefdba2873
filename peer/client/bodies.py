"""Bodies: what a program passes and gets, and the payload and content type that go on the wire.

Bytes are sent as they are. None is an empty payload. Everything else is sent as JSON, with the
content type `application/json`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from peer.modules.api import JSON_SCHEMA, MAX_BODY_BYTES, NO_ANSWER, Answer, Response, _NoAnswer
from proto.rmb.address import Address


class Reply(NamedTuple):
    """A good answer to a call.

    Attributes:
        payload: decrypted.
        schema: content type of the payload, None when the answer names none.
        source: the session that signed it.
    """

    payload: bytes
    schema: str | None
    source: Address

    def json(self) -> Any:
        """The value of a payload that is JSON; None for an empty one.

        Raises:
            ValueError: the payload is no JSON.
        """
        try:
            return json.loads(self.payload) if self.payload else None
        except RecursionError:
            raise ValueError("the payload is nested too deeply") from None


def encode(body: Any, schema: str | None = None) -> Response:
    """Returns the payload and the content type of a body.

    Args:
        body: see the module's text.
        schema: content type; None: that of JSON where the body becomes JSON.

    Raises:
        TypeError: the body is not JSON-able.
        ValueError: it is too large, or JSON can't hold a number in it.
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
    """Returns what a handler's return value means: a body, a Response, or no answer.

    Raises:
        TypeError: the value is not JSON-able.
        ValueError: it is too large, or JSON can't hold a number in it.
    """
    if isinstance(found, _NoAnswer):
        return NO_ANSWER
    if isinstance(found, Response):
        return encode(found.payload, found.schema)
    return encode(found)
