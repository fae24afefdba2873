"""ss58, the text form of accounts, as every Substrate tool shows them.

An address is the Base58 of `prefix, account, checksum`. The prefix names the network in one or two
bytes; the checksum is the first two bytes of blake2b-512 over "SS58PRE" and the rest. Only 32-byte
accounts are supported, so only the two-byte checksum is used.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from proto.identity.bounds import ACCOUNT_BYTES, MAX_ADDRESS_CHARS
from proto.identity.errors import AddressError

GENERIC_PREFIX: Final = 42
"""Prefix of Substrate for "no particular network", which TFChain uses too."""

MAX_PREFIX: Final = 2**14 - 1
"""Largest prefix: prefixes have 14 bits."""

_RESERVED_PREFIXES: Final = frozenset({46, 47})
_FIRST_TWO_BYTE_PREFIX: Final = 64
_CHECKSUM_BYTES: Final = 2
_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT_VALUES: Final = {digit: value for value, digit in enumerate(_ALPHABET)}


def encode(account: bytes, prefix: int = GENERIC_PREFIX) -> str:
    """Return the address of `account` on the network `prefix`.

    Raises:
        AddressError: the account does not have 32 bytes, or there is no such prefix.
    """
    if len(account) != ACCOUNT_BYTES:
        raise AddressError(f"an account has {ACCOUNT_BYTES} bytes, not {len(account)}")
    body = _prefix_bytes(prefix) + account
    return _to_base58(body + _checksum(body))


def decode(text: str, prefix: int | None = None) -> bytes:
    """Return the 32-byte account of an address.

    Args:
        text: the address.
        prefix: network that it must belong to; None accepts any, as the account is the same on all.

    Raises:
        AddressError: not an address, a wrong checksum, not a 32-byte account, or another network.
    """
    if len(text) > MAX_ADDRESS_CHARS:
        raise AddressError(f"an address has at most {MAX_ADDRESS_CHARS} characters")
    raw = _from_base58(text)
    body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    found, account = _split_prefix(body)
    if len(account) != ACCOUNT_BYTES:
        raise AddressError(f"address does not hold an account of {ACCOUNT_BYTES} bytes")
    if checksum != _checksum(body):
        raise AddressError("address has a wrong checksum")
    if prefix is not None and found != prefix:
        raise AddressError(f"address has network prefix {found}, expected {prefix}")
    return account


def _checksum(body: bytes) -> bytes:
    return blake2b(b"SS58PRE" + body).digest()[:_CHECKSUM_BYTES]


def _prefix_bytes(prefix: int) -> bytes:
    if not 0 <= prefix <= MAX_PREFIX or prefix in _RESERVED_PREFIXES:
        raise AddressError(f"no such network prefix: {prefix}")
    if prefix < _FIRST_TWO_BYTE_PREFIX:
        return bytes([prefix])
    # Bits of the prefix, 13 down to 0, as the ss58 registry spreads them over two bytes:
    # first byte 01 and bits 7-2, second byte bits 1-0 and bits 13-8.
    return bytes([0x40 | (prefix >> 2 & 0x3F), (prefix & 0x03) << 6 | prefix >> 8])


def _split_prefix(body: bytes) -> tuple[int, bytes]:
    if len(body) < 2:
        raise AddressError("address is too short")
    first, second = body[0], body[1]
    if first < _FIRST_TWO_BYTE_PREFIX:
        prefix, account = first, body[1:]
    elif first < 0x80:
        prefix, account = (first & 0x3F) << 2 | second >> 6 | (second & 0x3F) << 8, body[2:]
        if prefix < _FIRST_TWO_BYTE_PREFIX:
            raise AddressError("address spells a short network prefix in two bytes")
    else:
        raise AddressError("address has a reserved network prefix")
    if prefix in _RESERVED_PREFIXES:
        raise AddressError("address has a reserved network prefix")
    return prefix, account


def _to_base58(raw: bytes) -> str:
    digits = []
    number = int.from_bytes(raw, "big")
    while number:
        number, value = divmod(number, 58)
        digits.append(_ALPHABET[value])
    leading_zeros = len(raw) - len(raw.lstrip(b"\0"))
    return _ALPHABET[0] * leading_zeros + "".join(reversed(digits))


def _from_base58(text: str) -> bytes:
    number = 0
    try:
        for digit in text:
            number = number * 58 + _DIGIT_VALUES[digit]
    except KeyError:
        raise AddressError("address has a character that is not base58") from None
    leading_zeros = len(text) - len(text.lstrip(_ALPHABET[0]))
    return bytes(leading_zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
