"""Errors for malformed or refused keys, messages and calls of the lattice.

LatticeError
├── FormatError        a message, a subject or a name is malformed; the text names the field
├── KeyFormatError     a text is not an nkey of the expected kind
├── CheckError         an invocation is well formed but must not be executed; it has a `Reason`
├── ResponseError      a response does not answer the call; it has a `ResponseFault`
└── RemoteError        the other side executed or refused the call, and reports why it failed
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Reasons for which providers, the bridge and the monitor refuse or report an invocation."""

    UNDECODABLE = "undecodable"
    """The body is not an invocation."""
    SIZE = "size"
    """Payload and `content_length` differ, or the payload exceeds the limit."""
    HOST_ID = "host_id"
    """The host id is not the public key of a host."""
    TOKEN = "token"
    """The token is malformed."""
    SIGNATURE = "signature"
    ISSUER = "issuer"
    """It is signed by a key that is not in the list of cluster issuers."""
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    ISSUED_AT = "issued_at"
    """It was issued too long ago, or in the future."""
    TARGET_URL = "target_url"
    ORIGIN_URL = "origin_url"
    TARGET = "target"
    """It was sent to another entity."""
    HASH = "hash"
    """The content is not the one that was signed."""
    UNLINKED = "unlinked"
    """The origin has no link to the target."""
    PAYLOAD_MISSING = "payload_missing"
    """The payload is missing in the object store, or damaged."""
    OPERATION = "operation"
    """The target has no such operation."""
    POLICY = "policy"
    """A policy refuses the call."""
    BUSY = "busy"
    """The maximum number of calls are running or waiting already."""
    REPLAY = "replay"
    """The same token, or the same id, was seen before."""
    ORIGIN_UNKNOWN = "origin_unknown"
    """The registry has no claims of the origin."""
    HOST_UNKNOWN = "host_unknown"
    """No host with this id takes part in the lattice."""
    HOST_ORIGIN = "host_origin"
    """The host does not run the origin."""


UNKNOWN: Final = frozenset(
    {Reason.ORIGIN_UNKNOWN, Reason.HOST_UNKNOWN, Reason.HOST_ORIGIN, Reason.UNLINKED}
)
"""Reasons that depend on knowledge of the lattice, which may lack what has just started."""


class ResponseFault(StrEnum):
    """Reasons for which a response is not an answer to its call."""

    UNDECODABLE = "undecodable"
    INVOCATION_ID = "invocation_id"
    SIZE = "size"


class LatticeError(Exception):
    """Base class of this package's errors."""


class FormatError(LatticeError):
    """A message, a subject or a name is malformed.

    Attributes:
        field: field that is malformed; empty for the message as a whole.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


class KeyFormatError(LatticeError):
    """A text is not an nkey, is damaged, or is an nkey of another kind."""


class CheckError(LatticeError):
    """An invocation must not be executed.

    Attributes:
        reason: reason of the refusal.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ResponseError(LatticeError):
    """A response does not answer the call; whether the call was executed is unknown.

    Attributes:
        fault: fault of the response.
    """

    def __init__(self, fault: ResponseFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class RemoteError(LatticeError):
    """The other side reports that the call failed; the text is the one it sent."""
