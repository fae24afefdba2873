"""Errors of a request on its way from one peer to another and back.

PeerError
|- TwinsAwayError        no source of twins can answer whether a twin exists
|- ConnectError          a client could not start: no twin of its own, or no relay
`- CallError             a request of ours has no usable answer
   |- TwinNotFoundError  the requested twin does not exist
   |- RemoteError        the requested twin answered with an error
   |- RelayError         a relay could not deliver the request, or refused it
   |  `- TooLargeError   the message is larger than the relays accept; also a ValueError
   |- ExpiredError       no answer came in time
   `- UnverifiedError    the answer is not from the requested twin
"""

from __future__ import annotations

from proto.rmb.address import Address


class PeerError(Exception):
    """Base class of the errors that the peer raises for its users."""


class TwinsAwayError(PeerError):
    """No source of twins can be asked at present, so it is unknown whether a twin exists."""


class ConnectError(PeerError):
    """A client could not start: its key belongs to no twin, or no relay accepted it."""


class CallError(PeerError):
    """A request of ours has no usable answer."""


class TwinNotFoundError(CallError):
    """No twin has the requested id.

    Attributes:
        twin: the id.
    """

    def __init__(self, twin: int) -> None:
        super().__init__(f"there is no twin {twin}")
        self.twin = twin


class RemoteError(CallError):
    """The requested twin answered with an error.

    Attributes:
        code: code of the error: the peer's own (100-106, 500) or the service's.
        message: text of the error.
        source: address of the sender of the answer.
    """

    def __init__(self, code: int, message: str, source: Address) -> None:
        super().__init__(f"twin {source} answers: {message} (code {code})")
        self.code = code
        self.message = message
        self.source = source


class RelayError(CallError):
    """A relay could not deliver the request, or refused it; the text is the relay's."""


class TooLargeError(RelayError, ValueError):
    """A message is larger than the relays of its sender accept.

    Attributes:
        size_bytes: size of the message as it is sent.
        limit_bytes: size above which messages are refused. Relays do not announce their limits: if
            this one was inferred from a message that a relay refused, the real limit may be lower.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"message of {size_bytes} bytes: the relays take at most {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ExpiredError(CallError, TimeoutError):
    """No answer came in time; the request may have been carried out nevertheless."""


class UnverifiedError(CallError):
    """An answer came that its sender did not sign, or that cannot be decrypted."""


def seconds(duration_s: float) -> str:
    """Return a duration as error texts show it."""
    return f"{max(round(duration_s, 2), 0.01):g} s"
