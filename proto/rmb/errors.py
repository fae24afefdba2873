"""Errors in RMB input.

    RmbError
    |- AddressError          text that is not an address
    |- BoundError            a field above its bound
    `- EnvelopeError         an incoming envelope that cannot be used; has the peer's error code
       |- NotBinaryError     100
       |- NotEnvelopeError   101
       |- ExpiredError       102
       |- UnknownTwinError   103
       |- SignatureError     104
       |- NoPublicKeyError   105
       `- CipherError        106

Codes and messages are those with which rmb-peer 1.5 answers requests; clients show them to users.
"""

from __future__ import annotations

from typing import ClassVar, Final

CODE_OTHER: Final = 500
"""Code of an error without a code of its own."""

MAX_CODE: Final = 2**32 - 1
"""Highest code of an error."""


class RmbError(Exception):
    """Base class of all exceptions that this package raises on bad input."""


class AddressError(RmbError):
    """Text that is not `<twin>` or `<twin>:<connection>`."""


class BoundError(RmbError):
    """A field is larger than allowed.

    Attributes:
        field: name of the field.
        size: size that was found.
        bound: size that is allowed.
        unit: unit of both.
    """

    def __init__(self, field: str, size: int, bound: int, unit: str = "bytes") -> None:
        super().__init__(f"{field} has {size} {unit}, at most {bound} are allowed")
        self.field = field
        self.size = size
        self.bound = bound
        self.unit = unit


class EnvelopeError(RmbError):
    """An incoming envelope cannot be used; `code` and the message go into the error answer."""

    code: ClassVar[int] = CODE_OTHER


class NotBinaryError(EnvelopeError):
    """A websocket message is text."""

    code = 100

    def __init__(self) -> None:
        super().__init__("payload is not a binary message")


class NotEnvelopeError(EnvelopeError):
    """The bytes cannot be parsed as an Envelope."""

    code = 101

    def __init__(self) -> None:
        super().__init__("payload is not an envelope")


class ExpiredError(EnvelopeError):
    """The deadline (timestamp + expiration) is not in the future."""

    code = 102

    def __init__(self) -> None:
        super().__init__("envelope validation error: message has expired")


class UnknownTwinError(EnvelopeError):
    """There is no such twin."""

    code = 103

    def __init__(self, twin: int) -> None:
        super().__init__(f"unknown twin id '{twin}'")
        self.twin = twin


class SignatureError(EnvelopeError):
    """An envelope is not signed, wrongly signed, or signed by another twin."""

    code = 104

    def __init__(self, detail: str) -> None:
        super().__init__(f"invalid envelope signature: {detail}")
        self.detail = detail


class NoPublicKeyError(EnvelopeError):
    """An encrypted payload comes from a twin that published no encryption key."""

    code = 105

    def __init__(self) -> None:
        super().__init__("sender twin has no public key")


class CipherError(EnvelopeError):
    """A cipher payload cannot be decrypted."""

    code = 106

    def __init__(self) -> None:
        super().__init__("e2e error: invalid cipher data")
