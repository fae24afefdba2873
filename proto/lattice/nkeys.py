"""Keys of NATS and of the lattice: Ed25519 keys as text, and their signatures (sheet section 3).

A public key is the base32 of a prefix, 32 bytes and a checksum; a seed has a prefix of two bytes.
Unlike the Rust peers, this module verifies the checksum.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b32decode, b32encode
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

import ed25519_zebra
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proto.identity.accounts import WEAK_ACCOUNTS
from proto.lattice.bounds import CACHED_KEYS
from proto.lattice.errors import KeyFormatError

RAW_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
PUBLIC_CHARS: Final = 56
SEED_CHARS: Final = 58
SHOWN_CHARS: Final = 4
_CRC_BYTES: Final = 2
_SEED_PREFIX: Final = 0x90  # 18 << 3: "S"
_SEED_MASK: Final = 0xF8
_BASE32: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


class KeyKind(Enum):
    """Kind of the owner of a key; the value is the prefix of its public key."""

    ACCOUNT = 0x00
    CLUSTER = 0x10
    ACTOR = 0x60
    HOST = 0x68
    OPERATOR = 0x70
    USER = 0xA0
    PROVIDER = 0xA8
    CURVE = 0xB8
    """A key for key agreement, which cannot sign."""

    @property
    def letter(self) -> str:
        """First character of a public key of this kind."""
        return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[self.value >> 3]


_KINDS: Final = {kind.value: kind for kind in KeyKind}


class PublicKey(NamedTuple):
    """A decoded public key.

    Attributes:
        kind: kind of its owner, from the prefix.
        raw: the key itself, 32 bytes.
    """

    kind: KeyKind
    raw: bytes


def encode_public(kind: KeyKind, raw: bytes) -> str:
    """Return the text of a public key.

    Raises:
        KeyFormatError: `raw` is not 32 bytes long.
    """
    _check_raw(raw, "public key")
    return _to_text(bytes([kind.value]) + raw)


def decode_public(text: str, *kinds: KeyKind) -> PublicKey:
    """Read a public key.

    Args:
        text: 56 characters.
        kinds: kinds that are allowed; empty: all.

    Raises:
        KeyFormatError: the key is malformed, damaged, or of another kind.
    """
    key = _decode_public(text)
    if kinds and key.kind not in kinds:
        raise KeyFormatError(f"invalid key {_shown(text)}: {_wrong_kind(key.kind, kinds)}")
    return key


def encode_seed(kind: KeyKind, raw: bytes) -> str:
    """Return the text of a seed.

    Raises:
        KeyFormatError: `raw` is not 32 bytes long.
    """
    _check_raw(raw, "seed")
    header = bytes([_SEED_PREFIX | kind.value >> 5, (kind.value & 31) << 3])
    return _to_text(header + raw)


def decode_seed(text: str, *kinds: KeyKind) -> tuple[KeyKind, bytes]:
    """Read a seed. Errors never contain the seed.

    Raises:
        KeyFormatError: the seed is malformed, damaged, or of another kind.
    """
    body = _from_text(text, SEED_CHARS, "seed", "seed")
    if body[0] & _SEED_MASK != _SEED_PREFIX:
        raise KeyFormatError("invalid seed: expected a text that begins with S")
    prefix = (body[0] & 7) << 5 | body[1] >> 3
    kind = _KINDS.get(prefix)
    if kind is None or body[1] & 7:
        raise KeyFormatError(f"invalid seed: unknown key prefix {prefix:#04x}")
    if kinds and kind not in kinds:
        raise KeyFormatError(f"invalid seed: {_wrong_kind(kind, kinds)}")
    return kind, body[2:]


class KeyPair:
    """A key pair that can sign.

    Attributes:
        kind: kind of its owner.
        public: text of the public key.
        raw_public: the 32 bytes of the public key.
    """

    __slots__ = ("_private", "kind", "public", "raw_public")

    def __init__(self, kind: KeyKind, raw_seed: bytes) -> None:
        _check_raw(raw_seed, "seed")
        if kind is KeyKind.CURVE:
            raise KeyFormatError("a curve key (X) does not sign")
        self.kind = kind
        # `cryptography` signs a quarter faster than `ed25519_zebra`, which verifies three times as
        # fast.
        self._private = Ed25519PrivateKey.from_private_bytes(raw_seed)
        self.raw_public = self._private.public_key().public_bytes_raw()
        self.public = encode_public(kind, self.raw_public)

    @classmethod
    def of_seed(cls, text: str, *kinds: KeyKind) -> KeyPair:
        """Return the key pair of a seed.

        Raises:
            KeyFormatError: the seed is malformed, damaged, of another kind, or cannot sign.
        """
        return cls(*decode_seed(text, *kinds))

    @classmethod
    def of_random(cls, kind: KeyKind, random32: bytes) -> KeyPair:
        """Return a key pair, derived from 32 random bytes, that all peers accept.

        Rust peers refuse one key in 65,536 (see `is_refused_by_peers`); then another key is derived
        from the same random bytes.
        """
        pair = cls(kind, random32)
        while is_refused_by_peers(pair.public):
            random32 = hashlib.sha256(random32).digest()
            pair = cls(kind, random32)
        return pair

    @property
    def seed(self) -> str:
        """Text of the seed, which is secret and must not be logged."""
        return encode_seed(self.kind, self._private.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the signature of some data: 64 bytes."""
        return self._private.sign(data)

    def __repr__(self) -> str:
        return f"<KeyPair {self.public}>"


def verify(public: str, data: bytes, signature: bytes) -> bool:
    """Return whether the signature of the data is by the owner of a public key.

    Raises:
        KeyFormatError: `public` is not a public key.
    """
    return verify_raw(_decode_public(public).raw, data, signature)


def verify_raw(raw: bytes, data: bytes, signature: bytes) -> bool:
    """Return whether a key's owner signed the data; False for weak keys, which sign for anyone."""
    return (
        len(signature) == SIGNATURE_BYTES
        and raw not in WEAK_ACCOUNTS
        and bool(ed25519_zebra.ed_verify(signature, data, raw))
    )


def is_refused_by_peers(public: str) -> bool:
    """Return whether Rust nkeys 0.3 refuses a valid key, since it compares the wrong two bytes."""
    body = b32decode(public)
    return body[:_CRC_BYTES] == body[-_CRC_BYTES:]


@lru_cache(maxsize=CACHED_KEYS)
def _decode_public(text: str) -> PublicKey:
    body = _from_text(text, PUBLIC_CHARS, "key", f"key {_shown(text)}")
    kind = _KINDS.get(body[0])
    if kind is None:
        raise KeyFormatError(f"invalid key {_shown(text)}: unknown prefix {body[0]:#04x}")
    return PublicKey(kind, body[1:])


def _to_text(body: bytes) -> str:
    crc = binascii.crc_hqx(body, 0).to_bytes(_CRC_BYTES, "little")
    return b32encode(body + crc).decode().rstrip("=")


def _from_text(text: str, chars: int, noun: str, name: str) -> bytes:
    """Return the bytes that a text encodes, without the checksum."""
    if len(text) != chars:
        raise KeyFormatError(f"invalid {name}: {len(text)} characters, expected {chars}")
    if not _BASE32.issuperset(text):
        raise KeyFormatError(f"invalid {name}: expected only A-Z and 2-7")
    data = b32decode(text + "=" * (-chars % 8))
    body, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if binascii.crc_hqx(body, 0) != int.from_bytes(crc, "little"):
        raise KeyFormatError(f"invalid {name}: wrong checksum; copy the whole {noun} again")
    if chars == SEED_CHARS and not _to_text(body) == text:
        raise KeyFormatError(f"invalid {name}: the last character has unused bits set")
    return body


def _check_raw(raw: bytes, name: str) -> None:
    if len(raw) != RAW_BYTES:
        raise KeyFormatError(f"{name} of {len(raw)} bytes, expected {RAW_BYTES}")


def _wrong_kind(kind: KeyKind, kinds: tuple[KeyKind, ...]) -> str:
    expected = " or ".join(f"{each.name.lower()} key ({each.letter})" for each in kinds)
    return f"{kind.name.lower()} key ({kind.letter}), expected: {expected}"


def _shown(text: str) -> str:
    if len(text) > PUBLIC_CHARS or text.startswith("S"):  # may be a seed
        return repr(f"{text[:SHOWN_CHARS]}...")
    return repr(text)
