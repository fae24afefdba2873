"""The encryption key: a secp256k1 secret with which two twins agree on a shared secret.

It is made from the same mini secret as the signing key, before any derivation. Its public half is
the twin's `pk`. The shared secret is the sha256 of the x coordinate alone of the common point, as
32 bytes with leading zeros kept. (libsecp256k1's own ecdh, which coincurve offers as `ecdh`, hashes
the compressed point with its sign byte, which gives a different secret.)
"""

from __future__ import annotations

from hashlib import sha256

from coincurve import PrivateKey, PublicKey

from proto.identity.bounds import MINI_SECRET_BYTES, PUBLIC_KEY_BYTES
from proto.identity.errors import AgreementError, SecretError
from proto.identity.seeds import parse_secret


class EncryptionKey:
    """Secret key for end-to-end encryption.

    Attributes:
        public: compressed public key, 33 bytes.
    """

    __slots__ = ("_secret", "public")

    def __init__(self, mini_secret: bytes) -> None:
        """Create the key from 32 secret bytes.

        Raises:
            SecretError: not 32 bytes, or zero or beyond the order of the curve.
        """
        if len(mini_secret) != MINI_SECRET_BYTES:
            raise SecretError(f"a mini secret has {MINI_SECRET_BYTES} bytes")
        try:
            key = PrivateKey(mini_secret)
        except ValueError:
            raise SecretError("these 32 bytes are not a secp256k1 secret key") from None
        self._secret = mini_secret
        self.public: bytes = key.public_key.format(compressed=True)

    @classmethod
    def from_secret(cls, text: str) -> EncryptionKey:
        """Return the key of a secret text; a derivation path does not affect it."""
        return cls(parse_secret(text).mini_secret)

    def shared_secret(self, peer_public: bytes) -> bytes:
        """Return the 32 bytes that only the holders of both keys can compute.

        Raises:
            AgreementError: `peer_public` is not a compressed secp256k1 public key.
        """
        if len(peer_public) != PUBLIC_KEY_BYTES:
            raise AgreementError(
                f"a public key has {PUBLIC_KEY_BYTES} bytes, not {len(peer_public)}"
            )
        try:
            point = PublicKey(peer_public).multiply(self._secret)
        except ValueError:
            raise AgreementError("these bytes are not a compressed secp256k1 public key") from None
        x_coordinate = point.format(compressed=True)[1:]
        return sha256(x_coordinate).digest()

    def __repr__(self) -> str:
        return f"<EncryptionKey {self.public.hex()}>"
