"""Names of the protocols of events, and of the kinds of those of the lattice.

Imports nothing: pages and models read them, too.
"""

from __future__ import annotations

from typing import Final

RMB: Final = "rmb"
SBD: Final = "sbd"
LATTICE: Final = "lattice"

LATTICE_OUT: Final = "lattice_out"
LATTICE_IN: Final = "lattice_in"
LATTICE_SEEN: Final = "lattice_seen"
LATTICE_KINDS: Final = (LATTICE_OUT, LATTICE_IN, LATTICE_SEEN)
