"""Limits and sizes of identities: a constant, its unit, its reason."""

from __future__ import annotations

from typing import Final

ACCOUNT_BYTES: Final = 32
"""An account is a public key of either signature scheme."""

MINI_SECRET_BYTES: Final = 32
"""A Substrate mini secret; both signing schemes and secp256k1 start from it."""

SIGNATURE_BYTES: Final = 65
"""One byte key type and 64 bytes signature."""

PUBLIC_KEY_BYTES: Final = 33
"""A compressed secp256k1 point: a twin's `pk`."""

MAX_ADDRESS_CHARS: Final = 50
"""The longest ss58 text of 2 prefix + 32 account + 2 checksum bytes; decoding is quadratic."""

MAX_SECRET_CHARS: Final = 1024
"""24 words of at most 8 letters take 215; the rest is room for a derivation path."""

MAX_TOKEN_BYTES: Final = 8192
"""Known clients send 180 to 300; common proxies pass request lines of up to 8 KiB."""

MAX_JSON_BRACKETS: Final = 64
"""Opening brackets in one part of a token, those inside strings too. It bounds the nesting, which
the JSON reader follows by recursion; known clients send one."""

MAX_TWIN: Final = 2**32 - 1
"""Twin ids are uint32 on the wire and on chain."""

MAX_TIME_S: Final = 2**64 - 1
"""Token times are uint64 in the reference relay."""

TOKEN_TTL_S: Final = 300
"""Life of a token unless told otherwise: what rmb-peer 1.5 uses."""
