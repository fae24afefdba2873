"""What can go wrong on the way from a peer to another and back.

PeerError
|- TwinsAwayError        no source of twins can say whether a twin exists
|- ConnectError          a client could not begin: no twin of its own, or no relay
`- CallError             a request of ours has no answer that can be used
   |- TwinNotFoundError  there is no such twin
   |- RemoteError        the twin that was asked answered with an error
   |- RelayError         a relay could not deliver it, or would not
   |  `- TooLargeError   it is larger than the relays take; also a ValueError
   |- ExpiredError       nobody answered in time
   `- UnverifiedError    the answer is not from the twin that was asked
"""

from __future__ import annotations

from proto.rmb.address import Address


class PeerError(Exception):
    """Base of what the peer raises for its users."""


class TwinsAwayError(PeerError):
    """Nobody who knows twins can be asked now: nothing is said of whether one exists."""


class ConnectError(PeerError):
    """A client could not begin: its key belongs to no twin, or no relay let it in."""


class CallError(PeerError):
    """A request of ours has no answer that can be used."""


class TwinNotFoundError(CallError):
    """There is no twin with the id that was asked.

    Attributes:
        twin: the id.
    """

    def __init__(self, twin: int) -> None:
        super().__init__(f"there is no twin {twin}")
        self.twin = twin


class RemoteError(CallError):
    """The twin that was asked answered with an error.

    Attributes:
        code: the error's code: the peer's own (100-106, 500) or the service's.
        message: its text.
        source: who answered.
    """

    def __init__(self, code: int, message: str, source: Address) -> None:
        super().__init__(f"twin {source} answers: {message} (code {code})")
        self.code = code
        self.message = message
        self.source = source


class RelayError(CallError):
    """A relay could not deliver the request, or would not; its text is the relay's."""


class TooLargeError(RelayError, ValueError):
    """A message is larger than the relays of its sender take.

    Attributes:
        size_bytes: of the message, as it is sent.
        limit_bytes: what is larger is refused. Relays do not tell their bounds: where one is found
            out by what it did not take, it may take less.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"message of {size_bytes} bytes: the relays take at most {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ExpiredError(CallError, TimeoutError):
    """Nobody answered in time; the request may have been carried out all the same."""


class UnverifiedError(CallError):
    """An answer came that its sender did not sign, or that does not open."""


def seconds(duration_s: float) -> str:
    """How long something was waited for, as texts say it."""
    return f"{max(round(duration_s, 2), 0.01):g} s"
