"""Storage keys, under which the chain stores its values.

A key is twox128 of the pallet's name, twox128 of the item's name, and for a map the hashed map key.
TfgridModule's maps hash with Blake2_128Concat: 16 bytes of blake2b followed by the map key itself,
so that it can be recovered.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import xxhash

from proto.chain import scale
from proto.chain.bounds import ACCOUNT_BYTES
from proto.chain.errors import ScaleError

PALLET: Final = "TfgridModule"

_BLAKE2_128_BYTES: Final = 16
_TWIN_ID_BYTES: Final = 4


def twox128(name: str) -> bytes:
    """Return two 64-bit xxHashes of a name, with seeds 0 and 1."""
    raw = name.encode()
    return b"".join(xxhash.xxh64(raw, seed=seed).digest()[::-1] for seed in (0, 1))


def blake2_128_concat(key: bytes) -> bytes:
    """Return the hash of a map key followed by the key itself."""
    return blake2b(key, digest_size=_BLAKE2_128_BYTES).digest() + key


def item_key(pallet: str, item: str) -> bytes:
    """Return the key of a single value, which for a map is the prefix of all its keys."""
    return twox128(pallet) + twox128(item)


TWINS: Final = item_key(PALLET, "Twins")
"""Prefix of the map twin id -> Twin."""

TWIN_ID_BY_ACCOUNT: Final = item_key(PALLET, "TwinIdByAccountID")
"""Prefix of the map account -> twin id."""

LAST_TWIN_ID: Final = item_key(PALLET, "TwinID")
"""Key of the twin id assigned last, u32; nothing is stored before the first twin."""

TERMS: Final = item_key(PALLET, "UsersTermsAndConditions")
"""Prefix of the map account -> accepted terms and conditions."""

EVENTS: Final = item_key("System", "Events")
"""Key of the events of the block whose state is queried."""

ACCOUNTS: Final = item_key("System", "Account")
"""Prefix of the map account -> nonce and balances."""


def twin_key(twin: int) -> bytes:
    """Return the storage key of a twin.

    Raises:
        ScaleError: the id is not a u32.
    """
    return TWINS + blake2_128_concat(scale.u32("twin", twin))


def twin_id_key(account: bytes) -> bytes:
    """Return the storage key of the id of an account's twin.

    Raises:
        ScaleError: the account does not have 32 bytes.
    """
    return TWIN_ID_BY_ACCOUNT + _account_part(account)


def terms_key(account: bytes) -> bytes:
    """Return the storage key of the terms that an account accepted."""
    return TERMS + _account_part(account)


def account_key(account: bytes) -> bytes:
    """Return the storage key of an account's nonce and balances."""
    return ACCOUNTS + _account_part(account)


def twin_of_key(key: bytes) -> int:
    """Return the twin id in a key that `twin_key` made.

    Raises:
        ScaleError: not such a key.
    """
    twin = key[-_TWIN_ID_BYTES:]
    if key != TWINS + blake2_128_concat(twin):
        raise ScaleError("key", "not the storage key of a twin")
    return int.from_bytes(twin, "little")


def _account_part(account: bytes) -> bytes:
    return blake2_128_concat(scale.fixed("account", account, ACCOUNT_BYTES))
