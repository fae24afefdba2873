"""Requests and responses (sheet section 12).

    request   {"jsonrpc": "2.0", "method": name, "params": {...}, "id": null}
    response  {"jsonrpc": "2.0", "result": ..., "id": null}
    error     {"jsonrpc": "2.0", "error": {"code": ..., "message": ..., "data": ...}, "id": null}

A message belongs to the call of its stream; the id has no meaning. `params` and `result` may have
`metadata`, whose `timeout` (of the first request, in milliseconds) lowers that of the handler.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from proto.rpc.errors import ErrorCode, RpcError, RpcMessageError, remote_error

METADATA: Final = "metadata"
TIMEOUT: Final = "timeout"

Json = Mapping[str, Any]


class Request(NamedTuple):
    """A message of a caller.

    Attributes:
        method: method to call; only that of the first message is used.
        params: parameters, without their metadata.
        metadata: metadata of the parameters.
    """

    method: str
    params: dict[str, Any]
    metadata: dict[str, Any]

    @property
    def timeout_ms(self) -> float | None:
        """Time that the caller waits; None: not given, or without end."""
        value = self.metadata.get(TIMEOUT)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if math.isfinite(value) and value >= 0 else None


def request(method: str, params: Json, metadata: Json | None = None) -> bytes:
    """Return an encoded request.

    Raises:
        TypeError: the parameters are not JSON.
    """
    members = dict(params)
    if metadata:
        members[METADATA] = dict(metadata)
    return _written({"jsonrpc": "2.0", "method": method, "params": members, "id": None})


def response(result: Any) -> bytes:
    """Return an encoded response.

    Raises:
        TypeError: the result is not JSON.
    """
    return _written({"jsonrpc": "2.0", "result": result, "id": None})


def error_response(member: Json) -> bytes:
    """Return an encoded error message; see `errors.error_member`."""
    return _written({"jsonrpc": "2.0", "error": dict(member), "id": None})


def read_request(value: Json) -> Request:
    """Read a request.

    Raises:
        RpcMessageError: it has no method, or its parameters are not an object.
    """
    method = value.get("method")
    if not isinstance(method, str):
        raise RpcMessageError(ErrorCode.INVALID_REQUEST, "a request has no method")
    params = value.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise RpcMessageError(ErrorCode.INVALID_PARAMS, "params is not an object")
    metadata = params.get(METADATA)
    params = {name: each for name, each in params.items() if name != METADATA}
    return Request(method, params, metadata if isinstance(metadata, dict) else {})


def read_response(value: Json) -> Any:
    """Return the result of a response; None if a handler of the reference returned nothing.

    Raises:
        RpcRemoteError: the handler failed.
        RpcMessageError: the value is not a response.
    """
    error = value.get("error")
    if error is None:
        return value.get("result")
    if "result" in value:
        raise RpcMessageError(ErrorCode.PARSE, "a response has both result and error")
    if not isinstance(error, dict):
        raise RpcMessageError(ErrorCode.PARSE, "error is not an object")
    code, message = error.get("code"), error.get("message")
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(message, str):
        raise RpcMessageError(ErrorCode.PARSE, "an error has no code or no message")
    failure: RpcError = remote_error(error)
    raise failure


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _written(value: Json) -> bytes:
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError:  # a lone surrogate, as JavaScript allows: escape it
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
