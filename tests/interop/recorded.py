"""What released clients, peers and relays were seen to send: the files in `vectors/`.

Their secrets are test data. Each file says in `about` who made its entries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_VECTORS = Path(__file__).parent / "vectors"


def recorded(name: str) -> list[dict[str, Any]]:
    """The entries of `vectors/rmb_<name>.json`."""
    content = json.loads((_VECTORS / f"rmb_{name}.json").read_text(encoding="utf-8"))
    entries: list[dict[str, Any]] = content[name]
    return entries


def recorded_chain() -> dict[str, Any]:
    """All of `vectors/tfchain.json`: bytes of a local chain that ran the real tfchain runtime."""
    content: dict[str, Any] = json.loads((_VECTORS / "tfchain.json").read_text(encoding="utf-8"))
    return content


def recorded_sbd() -> dict[str, Any]:
    """All of `vectors/sbd.json`: messages, log-ins and answers of the SBD server 0.4.0."""
    content: dict[str, Any] = json.loads((_VECTORS / "sbd.json").read_text(encoding="utf-8"))
    return content


def recorded_lattice() -> dict[str, Any]:
    """All of `vectors/lattice.json`: what wasmCloud 0.82 and its libraries put on the wire."""
    content: dict[str, Any] = json.loads((_VECTORS / "lattice.json").read_text(encoding="utf-8"))
    return content
