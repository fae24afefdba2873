"""Names of the protocols of events, and of the kinds of events of the lattice.

Imports nothing, so that pages and models can use it, too.
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
