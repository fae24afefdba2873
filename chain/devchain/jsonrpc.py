"""JSON-RPC 2.0 as nodes use it: parsing of requests and parameters, encoding of answers.

Codes and messages are those of nodes (jsonrpsee). Batches are answered with the error of a node
that is configured to refuse them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chain.devchain.bounds import MAX_ID_CHARS, MAX_METHOD_CHARS
from proto.chain.bounds import HASH_BYTES
from proto.chain.errors import ChainFormatError
from proto.chain.headers import from_hex

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NO_BATCHES: Final = -32005
TOO_MANY_SUBSCRIPTIONS: Final = -32006

_MAX_NUMBER_ID: Final = 2**64 - 1

RequestId = int | str | None


class RpcError(Exception):
    """An error to answer with.

    Attributes:
        code, message, data: fields of the JSON-RPC error; None omits the data.
    """

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class BadRequestError(RpcError):
    """A message that is not a request.

    Attributes:
        request_id: id of the request, as far as it could be read.
    """

    def __init__(self, code: int, message: str, request_id: RequestId = None) -> None:
        super().__init__(code, message)
        self.request_id = request_id


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed request to call a method."""

    id: RequestId
    method: str
    params: Sequence[Any] | Mapping[str, Any]


def parse(message: str | bytes) -> Request:
    """Parse one message.

    Raises:
        BadRequestError: the message is not a request.
    """
    try:
        value = json.loads(message)
    except (ValueError, RecursionError):
        raise BadRequestError(PARSE_ERROR, "Parse error") from None
    if isinstance(value, list):
        raise BadRequestError(NO_BATCHES, "Batched requests are not supported by this server")
    request_id = _id_of(value)
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise BadRequestError(INVALID_REQUEST, "Invalid request", request_id)
    method, params = value.get("method"), value.get("params")
    if params is None:
        params = []
    if not isinstance(method, str) or not isinstance(params, list | dict) or "id" not in value:
        raise BadRequestError(INVALID_REQUEST, "Invalid request", request_id)
    return Request(request_id, method, params)


def result(request_id: RequestId, value: object) -> str:
    """Return the answer with a result."""
    return _write({"jsonrpc": "2.0", "result": value, "id": request_id})


def error(request_id: RequestId, problem: RpcError) -> str:
    """Return the answer with an error."""
    described: dict[str, object] = {"code": problem.code, "message": problem.message}
    if problem.data is not None:
        described["data"] = problem.data
    return _write({"jsonrpc": "2.0", "error": described, "id": request_id})


def notification(method: str, subscription: str, value: object) -> str:
    """Return a notification to a subscriber."""
    params = {"subscription": subscription, "result": value}
    return _write({"jsonrpc": "2.0", "method": method, "params": params})


class Positional:
    """Parameters given as a list, taken one after another; each can be taken once.

    Every method raises `RpcError` with the position of a parameter that is invalid.
    """

    def __init__(self, values: Sequence[Any] | Mapping[str, Any]) -> None:
        if isinstance(values, Mapping):
            raise invalid_params("must be a list")
        self._values = list(values)
        self._taken = 0

    def take(self) -> Any:
        """Return the next parameter; None if there are no more."""
        self._taken += 1
        return self._values[self._taken - 1] if self._taken <= len(self._values) else None

    def data(self, max_bytes: int) -> bytes:
        """Return the next parameter, bytes in hex."""
        return self._data(self.take(), max_bytes)

    def optional_data(self, max_bytes: int) -> bytes | None:
        """Return the next parameter, bytes in hex or null."""
        value = self.take()
        return None if value is None else self._data(value, max_bytes)

    def optional_hash(self) -> bytes | None:
        """Return the next parameter, a hash or null."""
        value = self.optional_data(HASH_BYTES)
        if value is not None and len(value) != HASH_BYTES:
            raise self._wrong(f"has {len(value)} bytes instead of {HASH_BYTES}")
        return value

    def number(self, lowest: int, highest: int) -> int:
        """Return the next parameter, a number in a range."""
        value = self.take()
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise self._wrong(f"must be a number from {lowest} to {highest}")
        return value

    def text(self, max_chars: int) -> str:
        """Return the next parameter, a text."""
        value = self.take()
        if not isinstance(value, str) or len(value) > max_chars:
            raise self._wrong(f"must be text of at most {max_chars} characters")
        return value

    def list_of_data(self, max_items: int, max_bytes: int) -> list[bytes]:
        """Return the next parameter, a list of bytes in hex."""
        value = self.take()
        if not isinstance(value, list) or len(value) > max_items:
            raise self._wrong(f"must be a list of at most {max_items}")
        return [self._data(each, max_bytes) for each in value]

    def finish(self) -> None:
        """Check that no parameters remain."""
        if len(self._values) > self._taken:
            raise invalid_params(f"at most {self._taken} expected, {len(self._values)} given")

    def _data(self, value: object, max_bytes: int) -> bytes:
        try:
            return from_hex("value", value, max_bytes)
        except ChainFormatError as problem:
            raise self._wrong(str(problem)) from None

    def _wrong(self, problem: str) -> RpcError:
        return invalid_params(f"parameter {self._taken}: {problem}")


def invalid_params(problem: str) -> RpcError:
    """Return the error for invalid parameters."""
    return RpcError(INVALID_PARAMS, "Invalid params", problem)


def method_not_found(method: str) -> RpcError:
    """Return the error for a method that does not exist."""
    return RpcError(METHOD_NOT_FOUND, "Method not found", method[:MAX_METHOD_CHARS])


def _id_of(value: object) -> RequestId:
    found = value.get("id") if isinstance(value, dict) else None
    if isinstance(found, str) and len(found) <= MAX_ID_CHARS:
        return found
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) <= _MAX_NUMBER_ID:
        return found
    return None


def _write(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
