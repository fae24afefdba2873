"""End-to-end encryption of payloads: AES-256-GCM with a secret that two twins share.

The secret is that of `proto.identity.agreement` (sha256 of the x coordinate). A cipher payload is
the concatenation of nonce, ciphertext and tag. There is no associated data, so a relay sees source,
destination and command, and a peer must check the envelope's signature before it trusts any of
these.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proto.rmb.bounds import NONCE_BYTES, TAG_BYTES
from proto.rmb.errors import CipherError


class Box:
    """Encryption and decryption of payloads between two twins.

    Args:
        shared: 32 bytes, the same for both twins.
    """

    __slots__ = ("_aead",)

    def __init__(self, shared: bytes) -> None:
        self._aead = AESGCM(shared)  # kept: creating it takes longer than sealing a short payload

    def seal(self, plaintext: bytes, nonce: bytes) -> bytes:
        """Return the cipher payload.

        Args:
            plaintext: may be empty; the cipher payload then has 28 bytes.
            nonce: 12 random bytes, never used again with this secret.
        """
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"nonce has {len(nonce)} bytes, must have {NONCE_BYTES}")
        return nonce + self._aead.encrypt(nonce, plaintext, None)

    def unseal(self, cipher: bytes) -> bytes:
        """Return the plaintext of a cipher payload.

        Raises:
            CipherError: too short, modified, or sealed with another secret.
        """
        if len(cipher) < NONCE_BYTES + TAG_BYTES:
            raise CipherError
        try:
            return self._aead.decrypt(cipher[:NONCE_BYTES], cipher[NONCE_BYTES:], None)
        except InvalidTag:
            raise CipherError from None


def encrypt(shared: bytes, plaintext: bytes, nonce: bytes) -> bytes:
    """Encrypt one payload: see `Box`."""
    return Box(shared).seal(plaintext, nonce)


def decrypt(shared: bytes, cipher: bytes) -> bytes:
    """Decrypt one payload: see `Box`."""
    return Box(shared).unseal(cipher)
