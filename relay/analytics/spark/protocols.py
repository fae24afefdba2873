"""Names of the protocols that events are of; imports nothing, pages and models read them, too."""

from __future__ import annotations

from typing import Final

RMB: Final = "rmb"
SBD: Final = "sbd"
