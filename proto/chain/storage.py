"""Where the chain keeps things: storage keys.

A key is twox128 of the pallet's name, twox128 of the item's, and for a map the hashed key.
TfgridModule's maps hash with Blake2_128Concat: 16 bytes of blake2b in front of the key itself, so
that the key can be read back.
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
    """Two 64-bit xxHashes of a name, with seeds 0 and 1."""
    raw = name.encode()
    return b"".join(xxhash.xxh64(raw, seed=seed).digest()[::-1] for seed in (0, 1))


def blake2_128_concat(key: bytes) -> bytes:
    """A key of a map, hashed in a way that keeps it."""
    return blake2b(key, digest_size=_BLAKE2_128_BYTES).digest() + key


def item_key(pallet: str, item: str) -> bytes:
    """The key of a single value, the prefix of all keys of a map."""
    return twox128(pallet) + twox128(item)


TWINS: Final = item_key(PALLET, "Twins")
"""Prefix of the map twin id -> Twin."""

TWIN_ID_BY_ACCOUNT: Final = item_key(PALLET, "TwinIdByAccountID")
"""Prefix of the map account -> twin id."""

LAST_TWIN_ID: Final = item_key(PALLET, "TwinID")
"""The twin id given last, u32; nothing is stored before the first."""

TERMS: Final = item_key(PALLET, "UsersTermsAndConditions")
"""Prefix of the map account -> terms and conditions it accepted."""

EVENTS: Final = item_key("System", "Events")
"""The events of the block whose state is asked."""

ACCOUNTS: Final = item_key("System", "Account")
"""Prefix of the map account -> nonce and balances."""


def twin_key(twin: int) -> bytes:
    """Where a twin is.

    Raises:
        ScaleError: the id is no u32.
    """
    return TWINS + blake2_128_concat(scale.u32("twin", twin))


def twin_id_key(account: bytes) -> bytes:
    """Where the id of an account's twin is.

    Raises:
        ScaleError: the account has not 32 bytes.
    """
    return TWIN_ID_BY_ACCOUNT + _account_part(account)


def terms_key(account: bytes) -> bytes:
    """Where it says which terms an account accepted."""
    return TERMS + _account_part(account)


def account_key(account: bytes) -> bytes:
    """Where an account's nonce and balances are."""
    return ACCOUNTS + _account_part(account)


def twin_of_key(key: bytes) -> int:
    """The twin id in a key that `twin_key` made.

    Raises:
        ScaleError: not such a key.
    """
    twin = key[-_TWIN_ID_BYTES:]
    if key != TWINS + blake2_128_concat(twin):
        raise ScaleError("key", "not the storage key of a twin")
    return int.from_bytes(twin, "little")


def _account_part(account: bytes) -> bytes:
    return blake2_128_concat(scale.fixed("account", account, ACCOUNT_BYTES))
