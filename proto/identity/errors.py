"""What can be wrong with identities.

    IdentityError
    |- AddressError      text that is no ss58 address of a 32-byte account
    |- SecretError       text that is no secret, or a secret no key can be made of
    |- AgreementError    a public encryption key that is none
    |- SignatureError    a signature that is malformed or does not fit
    `- TokenError        a session token that does not open a session

Texts name the field and the bound and never repeat their input: that may be a secret or a token.
"""

from __future__ import annotations


class IdentityError(Exception):
    """Base of everything this package raises on bad input."""


class AddressError(IdentityError):
    """Text that is not the ss58 form of a 32-byte account."""


class SecretError(IdentityError):
    """Text that is not a mnemonic or seed, or no key of the wanted kind can be made of it."""


class AgreementError(IdentityError):
    """Bytes that are not a compressed secp256k1 public key."""


class SignatureError(IdentityError):
    """A signature that is malformed, of an unknown type, or made by another key."""


class TokenError(IdentityError):
    """A session token that is malformed, expired, too long-lived or wrongly signed."""


class ExpiredTokenError(TokenError):
    """A session token that has expired.

    Attributes:
        twin: whose it would be; its signature was not checked.
        late_s: for how long.
    """

    def __init__(self, twin: int, late_s: int) -> None:
        super().__init__(f"token expired {late_s} s ago by this relay's clock")
        self.twin = twin
        self.late_s = late_s
