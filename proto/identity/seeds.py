"""Secret texts, which users keep, and the 32 bytes from which keys are made.

A secret is a BIP-39 English mnemonic of 12 or 24 words, or 32 bytes of hex after `0x`. A mnemonic
is converted to a mini secret as substrate-bip39 does: with PBKDF2 over the *entropy* of the words,
not over the words as in BIP-39 itself. A derivation path (`//hard/soft`, as Substrate tools write
it) may follow. It affects the sr25519 signing key only (see `signing`), never the mini secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

import bip39

from proto.identity.bounds import MAX_SECRET_CHARS, MINI_SECRET_BYTES
from proto.identity.errors import SecretError

_MNEMONIC_WORDS: Final = (12, 24)
_SEED: Final = re.compile(f"0x([0-9a-fA-F]{{{2 * MINI_SECRET_BYTES}}})")
_PATH: Final = re.compile(r"(?://?[^/]+)*")
_JUNCTION: Final = re.compile(r"(//?)([^/]+)")
_NUMBER: Final = re.compile(r"\+?[0-9]+")
_CHAIN_CODE_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Secret:
    """A parsed secret text. Its repr does not reveal the secret."""

    mini_secret: bytes = field(repr=False)
    """The 32 bytes from which the encryption key is made, whatever the path."""

    path: str = field(repr=False, default="")
    """The derivation path as written, which may be "". A hard junction is a secret as well."""


class Junction(NamedTuple):
    """One step of a derivation path."""

    hard: bool
    chain_code: bytes
    """32 bytes."""


def parse_secret(text: str) -> Secret:
    """Parse a mnemonic or a 0x seed, with or without a derivation path.

    Raises:
        SecretError: the text is neither; the error message does not repeat it.
    """
    if len(text) > MAX_SECRET_CHARS:
        raise SecretError(f"a secret has at most {MAX_SECRET_CHARS} characters")
    text = text.strip()
    root, slash, rest = text.partition("/")
    path = slash + rest
    if "///" in path:
        raise SecretError("a password (///) after a secret is not supported")
    if not _PATH.fullmatch(path):
        raise SecretError("a derivation path is made of //hard and /soft parts, none of them empty")
    if root.startswith("0x"):
        return Secret(_seed_mini_secret(root), path)
    return Secret(_mnemonic_mini_secret(root), path)


def parse_path(path: str) -> list[Junction]:
    """Return the steps of a derivation path that `parse_secret` accepted."""
    return [
        Junction(hard=slashes == "//", chain_code=_chain_code(name))
        for slashes, name in _JUNCTION.findall(path)
    ]


def _seed_mini_secret(root: str) -> bytes:
    match = _SEED.fullmatch(root.strip())
    if not match:
        raise SecretError(f"a seed is 0x and {2 * MINI_SECRET_BYTES} hex digits")
    return bytes.fromhex(match[1])


def _mnemonic_mini_secret(root: str) -> bytes:
    words = root.split()
    if len(words) not in _MNEMONIC_WORDS:
        raise SecretError("a secret is a mnemonic of 12 or 24 words or a 0x seed")
    phrase = " ".join(words)
    # Checked first because the binding's encoding error would repeat a part of the input.
    if not phrase.isascii():
        raise SecretError("a mnemonic is made of English words")
    try:
        return bytes(bip39.bip39_to_mini_secret(phrase, "", "en"))
    except ValueError as error:
        # "Invalid mnemonic: invalid word in phrase with index 3": says where, not what.
        raise SecretError(str(error)) from None


def _chain_code(name: str) -> bytes:
    """Return a junction's name as sp-core's `DeriveJunction` encodes it.

    A name that Rust parses as a u64 is encoded as that number in little endian, any other as SCALE
    text. An encoding that fits is padded with zeros; a longer one is hashed.
    """
    if _NUMBER.fullmatch(name) and int(name) < 2**64:
        return int(name).to_bytes(_CHAIN_CODE_BYTES, "little")
    raw = name.encode("utf-8", "surrogatepass")
    encoded = _compact_length(len(raw)) + raw
    if len(encoded) > _CHAIN_CODE_BYTES:
        return blake2b(encoded, digest_size=_CHAIN_CODE_BYTES).digest()
    return encoded.ljust(_CHAIN_CODE_BYTES, b"\0")


def _compact_length(length: int) -> bytes:
    """Return the SCALE compact form of a length; `MAX_SECRET_CHARS` keeps it under 2**14."""
    if length < 2**6:
        return bytes([length << 2])
    return (length << 2 | 0b01).to_bytes(2, "little")
