"""Weak accounts: public keys for which anyone can forge a signature.

They are the points of order 1, 2, 4 and 8 on edwards25519, in every 32-byte form that Substrate's
ed25519 (ZIP 215) decodes. The account of all zeros, which a registry may store for "none", is also
the identity of sr25519. An account does not say which scheme it belongs to, so none of them may be
used with either scheme.
"""

from __future__ import annotations

from typing import Final

from proto.identity.bounds import ACCOUNT_BYTES

_P: Final = 2**255 - 19
_ORDER_8_ORDINATE: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826

# Including the two that fit in 255 bits without being reduced.
_ORDINATES: Final = (0, 1, _P - 1, _P, _P + 1, _ORDER_8_ORDINATE, _P - _ORDER_8_ORDINATE)

WEAK_ACCOUNTS: Final = frozenset(
    (ordinate | sign << 255).to_bytes(ACCOUNT_BYTES, "little")
    for ordinate in _ORDINATES
    for sign in (0, 1)
)

WEAK_ACCOUNT: Final = "anybody can sign for this account (a key of small order)"
"""Error message for such an account."""
