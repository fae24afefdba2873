"""Limits and sizes of chain values, each with its unit and reason.

Where the chain has a bound, the value here is the chain's (tfchain, spec 144 to 149). Where it has
none, the bound is far above any value seen in practice and keeps a misbehaving node from exhausting
memory.
"""

from __future__ import annotations

from typing import Final

ACCOUNT_BYTES: Final = 32
"""Size of an AccountId32: a public key of either signature scheme."""

HASH_BYTES: Final = 32
"""Size of a blake2b-256 hash: blocks, transactions and storage roots."""

MAX_RELAY_BYTES: Final = 1024
"""Maximum size of a twin's relay text. The chain rejects a call with a longer one as undecodable.
(A bound of 255 is often quoted, wrongly.)"""

MAX_PK_BYTES: Final = 128
"""Maximum size of a twin's `pk`, enforced in the same way; by convention it holds the 33 bytes of a
compressed secp256k1 key."""

MAX_ENTITIES: Final = 10_000
"""Maximum number of entities of a twin. The chain has no bound; each costs its entity a signed
transaction."""

MAX_ENTITY_SIGNATURE_BYTES: Final = 1024
"""Maximum size of an entity's signature. The chain has no bound; a signature has 64 bytes, or 128
as hex."""

MAX_DOCUMENT_LINK_BYTES: Final = 2048
"""Maximum size of the link to terms and conditions in user_accept_tc; at least one byte."""

MAX_DOCUMENT_HASH_BYTES: Final = 50
"""Maximum size of the hash of that document; at least one byte."""

MAX_EXTRINSIC_BYTES: Final = 5 * 1024 * 1024
"""Maximum size of a transaction: the length limit of a block in Substrate."""

MAX_EVENTS_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a block's System.Events. 5 MiB of the shortest calls produce less."""

MAX_LOGS: Final = 256
"""Maximum number of digest items in a header; real headers have one to three."""

MAX_LOG_BYTES: Final = 64 * 1024
"""Maximum size of one digest item; a change of the validator set is the longest."""

MAX_U32: Final = 2**32 - 1
"""Largest block number and twin id."""

MAX_COMPACT: Final = 2**536 - 1
"""Largest integer that SCALE's compact form can hold."""

MAX_NONCE: Final = MAX_U32
"""Largest nonce: tfchain counts an account's transactions in a u32."""

MAX_BALANCE: Final = 2**128 - 1
"""Largest balance or tip: both are u128."""

MAX_SIGNED_PLAIN_BYTES: Final = 256
"""Signing payloads longer than this are hashed first (Substrate)."""
