"""Errors in identities.

    IdentityError
    |- AddressError      text that is not the ss58 address of a 32-byte account
    |- SecretError       text that is not a secret, or a secret that gives no key
    |- AgreementError    bytes that are not a public encryption key
    |- SignatureError    a signature that is malformed or does not match
    `- TokenError        a session token that does not open a session

Messages name the field and the bound and never repeat their input, which may be a secret or a
token.
"""

from __future__ import annotations


class IdentityError(Exception):
    """Base class of all exceptions that this package raises on bad input."""


class AddressError(IdentityError):
    """Text that is not the ss58 form of a 32-byte account."""


class SecretError(IdentityError):
    """Text that is not a mnemonic or seed, or from which no key of the requested kind can
    be made.
    """


class AgreementError(IdentityError):
    """Bytes that are not a compressed secp256k1 public key."""


class SignatureError(IdentityError):
    """A signature that is malformed, of an unknown type, or made by another key."""


class TokenError(IdentityError):
    """A session token that is malformed, expired, too long-lived or wrongly signed."""


class ExpiredTokenError(TokenError):
    """A session token that has expired.

    Attributes:
        twin: twin that the token claims to be of; its signature was not checked.
        late_s: seconds since it expired.
    """

    def __init__(self, twin: int, late_s: int) -> None:
        super().__init__(f"token expired {late_s} s ago by this relay's clock")
        self.twin = twin
        self.late_s = late_s
