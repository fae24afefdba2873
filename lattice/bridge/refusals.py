"""Failures of calls over the bridge: on which side, why, and with which RMB error code."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from lattice.errors import (
    CallTimeoutError,
    ConnectionLostError,
    NoRespondersError,
    NotConnectedError,
    RemoteError,
    TooLargeError,
    TooManyCallsError,
)
from peer import errors as peer_errors
from proto.lattice.errors import FormatError, KeyFormatError, LatticeError
from proto.lattice.policy import Refusal, RefusedError


class Side(StrEnum):
    """Side on which a failure arose; it is the first word of the failure's text."""

    BRIDGE = "bridge"
    TWIN = "twin"
    RELAY = "relay"
    LATTICE = "lattice"
    ACTOR = "actor"
    PROVIDER = "provider"


BAD_REQUEST: Final = 400
REFUSED: Final = 403
NOT_FOUND: Final = 404
TOO_LARGE: Final = 413
TOO_MANY: Final = 429
FAILED: Final = 500
AWAY: Final = 503
TIMED_OUT: Final = 504

_CODES: Final = {
    Refusal.NO_POLICY: REFUSED,
    Refusal.LINK: REFUSED,
    Refusal.RATE: TOO_MANY,
    Refusal.SIZE: TOO_LARGE,
}


class FailedError(Exception):
    """A call over the bridge failed.

    Attributes:
        side: side on which it failed.
        outcome: outcome for the counts: a `Refusal` or a similar word.
        code: code of the error that a twin receives.
    """

    def __init__(self, side: Side, outcome: str, code: int, text: str) -> None:
        super().__init__(f"{side}: {text}")
        self.side = side
        self.outcome = outcome
        self.code = code


def refused(error: RefusedError) -> FailedError:
    """Return the failure of a call that policies or the link do not allow."""
    return FailedError(Side.BRIDGE, error.reason, _CODES[error.reason], str(error))


def malformed(error: FormatError | KeyFormatError | ValueError) -> FailedError:
    """Return the failure of a call that cannot be decoded."""
    return FailedError(Side.BRIDGE, "malformed", BAD_REQUEST, str(error))


def of_twin(twin: int, error: Exception) -> FailedError:
    """Return the failure of a request to a twin."""
    match error:
        case peer_errors.RemoteError():
            text = f"{twin}: {error.message} (code {error.code})"
            return FailedError(Side.TWIN, "remote_error", FAILED, text)
        case peer_errors.ExpiredError():
            return FailedError(Side.TWIN, "timed_out", TIMED_OUT, f"{twin}: {error}")
        case peer_errors.TwinNotFoundError():
            return FailedError(Side.RELAY, "not_found", NOT_FOUND, str(error))
        case peer_errors.TooLargeError():
            return FailedError(Side.RELAY, "size", TOO_LARGE, str(error))
        case _:
            return FailedError(Side.RELAY, "relay_error", AWAY, str(error))


def of_lattice(side: Side, error: LatticeError) -> FailedError:
    """Return the failure of an invocation of an actor or a provider."""
    match error:
        case RemoteError():
            return FailedError(side, "remote_error", FAILED, error.text or "failed without a text")
        case CallTimeoutError():
            return FailedError(side, "timed_out", TIMED_OUT, str(error))
        case NoRespondersError():
            return FailedError(Side.LATTICE, "no_responders", AWAY, str(error))
        case NotConnectedError() | ConnectionLostError():
            return FailedError(Side.LATTICE, "disconnected", AWAY, str(error))
        case TooManyCallsError():
            return FailedError(Side.BRIDGE, "busy", TOO_MANY, str(error))
        case TooLargeError():
            return FailedError(Side.BRIDGE, "size", TOO_LARGE, str(error))
        case _:
            return FailedError(Side.LATTICE, "lattice_error", FAILED, str(error))
