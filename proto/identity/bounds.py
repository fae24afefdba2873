"""Limits and sizes of identities, each with its unit and reason."""

from __future__ import annotations

from typing import Final

ACCOUNT_BYTES: Final = 32
"""Size of an account: a public key of either signature scheme."""

MINI_SECRET_BYTES: Final = 32
"""Size of a Substrate mini secret, from which both signing schemes and secp256k1 start."""

SIGNATURE_BYTES: Final = 65
"""Size of a signature: one byte for the key type and 64 bytes."""

PUBLIC_KEY_BYTES: Final = 33
"""Size of a compressed secp256k1 point: a twin's `pk`."""

MAX_ADDRESS_CHARS: Final = 50
"""Maximum length of an ss58 text of 2 prefix + 32 account + 2 checksum bytes; decoding is
quadratic."""

MAX_SECRET_CHARS: Final = 1024
"""Maximum length of a secret: 24 words of at most 8 letters take 215 characters; the rest is for a
derivation path."""

MAX_TOKEN_BYTES: Final = 8192
"""Maximum size of a token. Known clients send 180 to 300 bytes; common proxies accept request lines
of up to 8 KiB."""

MAX_JSON_BRACKETS: Final = 64
"""Maximum number of opening brackets in one part of a token, including those inside strings. It
bounds the nesting, which the JSON parser follows by recursion; known clients send one."""

MAX_TWIN: Final = 2**32 - 1
"""Largest twin id: a uint32 on the wire and on chain."""

MAX_TIME_S: Final = 2**64 - 1
"""Largest time in a token: a uint64 in the reference relay."""

TOKEN_TTL_S: Final = 300
"""Default lifetime of a token: the one of rmb-peer 1.5."""
