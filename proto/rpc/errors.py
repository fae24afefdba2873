"""Errors of calls, as raised on this side and as sent to the other side (sheet section 12).

RpcError
├── RpcMessageError      the other side sent something that is not a message
├── RpcRemoteError       the handler of the other side failed
├── RpcTimeoutError      no answer arrived in time
└── RpcStreamError       the stream of the call ended too early
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

MAX_CAUSES: Final = 16
"""Maximum number of nested causes of an error; deeper ones are omitted."""
HIDDEN: Final = "the handler failed"
"""Message that the other side gets in place of an error's own message, unless it is public."""

STANDARD_TYPES: Final = frozenset(
    {"Error", "TypeError", "SyntaxError", "ReferenceError", "EvalError", "RangeError", "URIError"}
)
"""Names of errors that the reference rebuilds; any other arrives there as a bare value (R8)."""


class ErrorCode(IntEnum):
    """Codes of error messages."""

    PARSE = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL = -32603
    HANDLER_NOT_FOUND = -32000
    STOPPING = -32001
    MESSAGE_TOO_LONG = -32003
    MISSING_RESPONSE = -32004
    OUTPUT_STREAM = -32005
    REMOTE = -32006
    STREAM_ENDED = -32007
    TIMED_OUT = -32008
    MISSING_HEADER = -32014
    ABORTED = -32015
    MISSING_CALLER = -32016


class RpcError(Exception):
    """Base class of this package's errors."""


class RpcMessageError(RpcError):
    """The other side sent something that is not a message of a call.

    Attributes:
        code: code of the error message that answers it.
    """

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class RpcTimeoutError(RpcError):
    """No answer arrived in time."""


class RpcStreamError(RpcError):
    """The stream of the call ended before the call did.

    Attributes:
        code: code of the stream's error; 0 for other reasons.
    """

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class RpcRemoteError(RpcError):
    """The handler of the other side failed.

    Attributes:
        code: code of the error message.
        type: name of the error's type there; empty if it was a bare value instead of an error.
        data: data of the error.
    """

    def __init__(self, code: int, type: str, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.type = type
        self.data = data


class PublicError(Exception):
    """An error of a handler whose message is sent to the caller; messages of others are hidden.

    Attributes:
        code: code of the error message.
        type: one of `STANDARD_TYPES`.
        details: further data for the caller, as JSON.
    """

    def __init__(
        self,
        message: str,
        code: int = ErrorCode.REMOTE,
        type: str = "Error",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        if type not in STANDARD_TYPES:
            raise ValueError(f"error type {type} is not one of {', '.join(sorted(STANDARD_TYPES))}")
        self.code = code
        self.type = type
        self.details = dict(details or {})


def error_member(error: BaseException) -> dict[str, Any]:
    """Return the member `error` of an error message for a failure of a handler.

    It contains the `stack` without which the reference does not recognise an error, but reveals
    nothing of the code that failed.
    """
    if isinstance(error, PublicError):
        code, type_, message = error.code, error.type, str(error)
    elif isinstance(error, RpcMessageError):
        code, type_, message = error.code, "Error", str(error)
    else:
        code, type_, message = ErrorCode.REMOTE, "Error", HIDDEN
    details = error.details if isinstance(error, PublicError) else {}
    inner = {**details, "stack": f"{type_}: {message}"}
    data = {"type": type_, "message": message, "data": inner}
    return {"code": int(code), "message": message, "data": data}


def remote_error(member: Mapping[str, Any]) -> RpcRemoteError:
    """Return the error in the member `error` of a message, with its causes."""
    return _rebuilt(int(member["code"]), str(member["message"]), member.get("data"), MAX_CAUSES)


def _rebuilt(code: int, text: str, value: Any, depth: int) -> RpcRemoteError:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return RpcRemoteError(code, "", text, value)
    inner = value.get("data")
    message = value.get("message")
    if not isinstance(message, str):
        found = inner.get("message") if isinstance(inner, dict) else None
        message = found if isinstance(found, str) else text
    error = RpcRemoteError(code, value["type"], message, inner)
    cause = inner.get("cause") if isinstance(inner, dict) else None
    if cause is not None and depth:
        error.__cause__ = _rebuilt(code, "", cause, depth - 1)
    return error
