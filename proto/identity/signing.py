"""Signing and verification: sr25519 and ed25519 behind one 65-byte signature format.

The first byte of a signature names the scheme; the other 64 are the scheme's own signature. An
account does not say which scheme it belongs to, so the signature decides which one is used. sr25519
signs in the context "substrate", over the plain bytes without any wrapper, like every Substrate
tool.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import ed25519_zebra
import sr25519

from proto.identity.accounts import WEAK_ACCOUNT, WEAK_ACCOUNTS
from proto.identity.bounds import ACCOUNT_BYTES, MINI_SECRET_BYTES, SIGNATURE_BYTES
from proto.identity.errors import SecretError, SignatureError
from proto.identity.seeds import parse_path, parse_secret


class KeyType(Enum):
    """A signature scheme; the value is the first byte of its signatures."""

    SR25519 = 0x73
    ED25519 = 0x65


# Reading an enum's value takes longer than most of the code around it.
_SR25519: Final = KeyType.SR25519.value
_ED25519: Final = KeyType.ED25519.value


class SigningKey:
    """Secret key for signing.

    Attributes:
        key_type: signature scheme.
        account: public key, 32 bytes.
    """

    __slots__ = ("_prefix", "_secret", "account", "key_type")

    def __init__(self, key_type: KeyType, account: bytes, secret: bytes) -> None:
        self.key_type = key_type
        self.account = account
        self._prefix = bytes([key_type.value])
        self._secret = secret  # the 64-byte expanded key of sr25519, the seed of ed25519

    @classmethod
    def from_secret(cls, text: str, key_type: KeyType = KeyType.SR25519) -> SigningKey:
        """Return the key of a secret text, including its derivation path.

        Raises:
            SecretError: not a secret, or a derivation path for an ed25519 key.
        """
        secret = parse_secret(text)
        if not secret.path:
            return cls.from_mini_secret(secret.mini_secret, key_type)
        if key_type is not KeyType.SR25519:
            raise SecretError("derivation paths are for sr25519 keys only")
        public, private = sr25519.pair_from_seed(secret.mini_secret)
        for hard, chain_code in parse_path(secret.path):
            derive = sr25519.hard_derive_keypair if hard else sr25519.derive_keypair
            _, public, private = derive((chain_code, public, private), b"")
        return cls(key_type, public, private)

    @classmethod
    def from_mini_secret(
        cls, mini_secret: bytes, key_type: KeyType = KeyType.SR25519
    ) -> SigningKey:
        """Return the key of 32 secret bytes.

        Raises:
            SecretError: not 32 bytes.
        """
        if len(mini_secret) != MINI_SECRET_BYTES:
            raise SecretError(f"a mini secret has {MINI_SECRET_BYTES} bytes")
        if key_type is KeyType.SR25519:
            public, private = sr25519.pair_from_seed(mini_secret)
            return cls(key_type, public, private)
        private, public = ed25519_zebra.ed_from_seed(mini_secret)
        return cls(key_type, public, private)

    def sign(self, message: bytes) -> bytes:
        """Return the 65-byte signature of `message`."""
        if self.key_type is KeyType.SR25519:
            signature: bytes = sr25519.sign((self.account, self._secret), message)
        else:
            signature = ed25519_zebra.ed_sign(self._secret, message)
        return self._prefix + signature

    def __repr__(self) -> str:
        return f"<SigningKey {self.key_type.name} {self.account.hex()}>"


def verify(account: bytes, message: bytes, signature: bytes) -> None:
    """Check that the holder of `account` signed `message`.

    Raises:
        SignatureError: the signature is malformed or does not match, with rmb-peer's messages, or
            the account is one for which anyone can sign (see `accounts`).
    """
    if len(signature) != SIGNATURE_BYTES:
        raise SignatureError(
            f"invalid signature length, expected: {SIGNATURE_BYTES}, found: {len(signature)}"
        )
    if len(account) != ACCOUNT_BYTES:
        raise SignatureError(f"invalid account length, expected: {ACCOUNT_BYTES}")
    if account in WEAK_ACCOUNTS:
        raise SignatureError(WEAK_ACCOUNT)
    scheme = signature[0]
    if scheme == _SR25519:
        if not _sr25519_fits(account, message, signature[1:]):
            raise SignatureError("sr25519 signature verification failed")
    elif scheme == _ED25519:
        if not _ed25519_fits(account, message, signature[1:]):
            raise SignatureError("ed25519 signature verification failed")
    else:
        raise SignatureError(
            f"invalid signature type, expected: 0x65 or 0x73, found: {scheme:#04x}"
        )


def _sr25519_fits(account: bytes, message: bytes, signature: bytes) -> bool:
    try:
        return bool(sr25519.verify(signature, message, account))
    except ValueError:  # bytes that are not a signature or not a public key at all
        return False


def _ed25519_fits(account: bytes, message: bytes, signature: bytes) -> bool:
    return bool(ed25519_zebra.ed_verify(signature, message, account))
