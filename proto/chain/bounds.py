"""Limits and sizes of chain values: a constant, its unit, its reason.

Where the chain has a bound it is the chain's (tfchain, spec 144 to 149); where it has none, ours is
far above anything seen and keeps a lying node from filling memory.
"""

from __future__ import annotations

from typing import Final

ACCOUNT_BYTES: Final = 32
"""An AccountId32: a public key of either signature scheme."""

HASH_BYTES: Final = 32
"""blake2b-256: block, transaction and storage root hashes."""

MAX_RELAY_BYTES: Final = 1024
"""The chain refuses a call with more as undecodable. (A bound of 255 is often quoted, wrongly.)"""

MAX_PK_BYTES: Final = 128
"""The same; by convention it holds the 33 bytes of a compressed secp256k1 key."""

MAX_ENTITIES: Final = 10_000
"""The chain has no bound; each costs its entity a signed transaction."""

MAX_ENTITY_SIGNATURE_BYTES: Final = 1024
"""The chain has no bound; a signature has 64 bytes, or 128 as hex."""

MAX_DOCUMENT_LINK_BYTES: Final = 2048
"""Link to terms and conditions in user_accept_tc; at least one byte."""

MAX_DOCUMENT_HASH_BYTES: Final = 50
"""Hash of that document; at least one byte."""

MAX_EXTRINSIC_BYTES: Final = 5 * 1024 * 1024
"""A block's length limit in Substrate: no transaction can be longer."""

MAX_EVENTS_BYTES: Final = 16 * 1024 * 1024
"""System.Events of one block. A block of 5 MiB of the shortest calls makes less."""

MAX_LOGS: Final = 256
"""Digest items of a header; there are one to three."""

MAX_LOG_BYTES: Final = 64 * 1024
"""One digest item; a change of the validator set is the longest."""

MAX_U32: Final = 2**32 - 1
"""Block numbers and twin ids."""

MAX_COMPACT: Final = 2**536 - 1
"""The largest integer SCALE's compact form has room for."""

MAX_NONCE: Final = MAX_U32
"""tfchain counts an account's transactions in a u32."""

MAX_BALANCE: Final = 2**128 - 1
"""Balances and tips are u128."""

MAX_SIGNED_PLAIN_BYTES: Final = 256
"""Signing payloads longer than this are hashed first (Substrate)."""
