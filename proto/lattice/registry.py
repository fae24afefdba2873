"""The registry of links and claims: a key-value bucket with JSON values (sheet section 9)."""

from __future__ import annotations

import hashlib
from typing import Final

from proto.lattice.subjects import check_lattice_id

CLAIMS_PREFIX: Final = "CLAIMS_"
LINK_PREFIX: Final = "LINKDEF_"


def bucket_name(lattice: str) -> str:
    """Return the name of the bucket.

    Raises:
        FormatError: not a lattice id.
    """
    return f"LATTICEDATA_{check_lattice_id(lattice)}"


def claims_key(public_key: str) -> str:
    """Return the key of an actor's or a provider's claims."""
    return f"{CLAIMS_PREFIX}{public_key}"


def link_key(actor_id: str, contract_id: str, link_name: str) -> str:
    """Return the key of a link; the provider is not part of it."""
    digest = hashlib.sha256(f"{actor_id}{contract_id}{link_name}".encode())
    return f"{LINK_PREFIX}{digest.hexdigest().upper()}"
