"""What is wrong with keys, messages and calls of the lattice.

LatticeError
├── FormatError        a message, a subject or a name is malformed; the text names the field
├── KeyFormatError     a text is not an nkey of the expected kind
├── CheckError         an invocation is well formed and must not be executed; it has a `Reason`
├── ResponseError      a response does not answer the call; it has a `ResponseFault`
└── RemoteError        the other side executed or refused the call, and says why it failed
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Why an invocation is refused or reported: by providers, the bridge and the monitor."""

    UNDECODABLE = "undecodable"
    """The body is not an invocation."""
    SIZE = "size"
    """Payload and `content_length` differ, or the payload is above the limit."""
    HOST_ID = "host_id"
    """Not the public key of a host."""
    TOKEN = "token"
    """The token is malformed."""
    SIGNATURE = "signature"
    ISSUER = "issuer"
    """Signed by a key outside of the list of cluster issuers."""
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    ISSUED_AT = "issued_at"
    """Issued too long ago, or in the future."""
    TARGET_URL = "target_url"
    ORIGIN_URL = "origin_url"
    TARGET = "target"
    """Sent to another entity."""
    HASH = "hash"
    """Other content than was signed."""
    UNLINKED = "unlinked"
    """The origin has no link to the target."""
    PAYLOAD_MISSING = "payload_missing"
    """The object store has no such payload, or a damaged one."""
    OPERATION = "operation"
    """The target has no such operation."""
    POLICY = "policy"
    """A policy refuses the call."""
    BUSY = "busy"
    """As many calls as allowed are running or waiting."""
    REPLAY = "replay"
    """The same token, or the same message, was seen before."""
    ORIGIN_UNKNOWN = "origin_unknown"
    """The registry has no claims of the origin."""
    HOST_UNKNOWN = "host_unknown"
    """No host of this id takes part in the lattice."""
    HOST_ORIGIN = "host_origin"
    """The host does not run the origin."""


UNKNOWN: Final = frozenset(
    {Reason.ORIGIN_UNKNOWN, Reason.HOST_UNKNOWN, Reason.HOST_ORIGIN, Reason.UNLINKED}
)
"""Reasons that depend on what is known of the lattice: what has just started may not be, yet."""


class ResponseFault(StrEnum):
    """Why a response is not an answer to its call."""

    UNDECODABLE = "undecodable"
    INVOCATION_ID = "invocation_id"
    SIZE = "size"


class LatticeError(Exception):
    """The root of this package's errors."""


class FormatError(LatticeError):
    """A message, a subject or a name is malformed.

    Attributes:
        field: that is malformed; empty for the message as a whole.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


class KeyFormatError(LatticeError):
    """Not an nkey, damaged, or of another kind."""


class CheckError(LatticeError):
    """An invocation must not be executed.

    Attributes:
        reason: of the refusal.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ResponseError(LatticeError):
    """A response that does not answer the call: whether it was executed is unknown.

    Attributes:
        fault: of the response.
    """

    def __init__(self, fault: ResponseFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class RemoteError(LatticeError):
    """The other side reports that the call failed; the text is its own."""
