"""Messages recorded from released clients, peers and relays: the files in `vectors/`.

Their secrets are test data. Each file states in `about` which program made its entries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_VECTORS = Path(__file__).parent / "vectors"


def recorded(name: str) -> list[dict[str, Any]]:
    """Return the entries of `vectors/rmb_<name>.json`."""
    content = json.loads((_VECTORS / f"rmb_{name}.json").read_text(encoding="utf-8"))
    entries: list[dict[str, Any]] = content[name]
    return entries


def recorded_chain() -> dict[str, Any]:
    """Return `vectors/tfchain.json`: bytes of a local chain that ran the real tfchain runtime."""
    content: dict[str, Any] = json.loads((_VECTORS / "tfchain.json").read_text(encoding="utf-8"))
    return content


def recorded_sbd() -> dict[str, Any]:
    """Return `vectors/sbd.json`: messages, log-ins and answers of the SBD server 0.4.0."""
    content: dict[str, Any] = json.loads((_VECTORS / "sbd.json").read_text(encoding="utf-8"))
    return content


def recorded_lattice() -> dict[str, Any]:
    """Return `vectors/lattice.json`: wire data of wasmCloud 0.82 and its libraries."""
    content: dict[str, Any] = json.loads((_VECTORS / "lattice.json").read_text(encoding="utf-8"))
    return content
