"""Accounts that prove nothing: public keys for which anybody can make a signature.

They are the points of order 1, 2, 4 and 8 on edwards25519, in every form of 32 bytes that the
ed25519 of Substrate (ZIP 215) decodes. The one of zeros, which a registry may hold for "none", is
the identity of sr25519 as well. An account does not tell its scheme, so neither scheme may be used
with any of them.
"""

from __future__ import annotations

from typing import Final

from proto.identity.bounds import ACCOUNT_BYTES

_P: Final = 2**255 - 19
_ORDER_8_ORDINATE: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826

# The two that fit in 255 bits unreduced included.
_ORDINATES: Final = (0, 1, _P - 1, _P, _P + 1, _ORDER_8_ORDINATE, _P - _ORDER_8_ORDINATE)

WEAK_ACCOUNTS: Final = frozenset(
    (ordinate | sign << 255).to_bytes(ACCOUNT_BYTES, "little")
    for ordinate in _ORDINATES
    for sign in (0, 1)
)

WEAK_ACCOUNT: Final = "anybody can sign for this account (a key of small order)"
"""What is wrong with one of them."""
