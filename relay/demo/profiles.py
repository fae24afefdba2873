"""Profiles of the demo twins for the command line of a peer: `rmb ping -p data/alice.toml`.

Each twin has one private file in the data folder. The relay writes the files at each start, since
its ports may change.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from relay.demo.identities import load
from relay.server import private_file

PROGRAM: Final = "rmb"


def write(data_dir: Path, runtime: dict[str, Any]) -> list[Path]:
    """Write a profile for each demo twin.

    Args:
        data_dir: folder that contains the twins' secrets and gets the profiles.
        runtime: addresses published by the relay at its start: relay_url and admin_url.

    Returns:
        The files written; empty if a peer could not use them, since it needs both addresses.
    """
    relay, site = runtime["relay_url"], runtime["admin_url"]
    if site is None or any(not url.startswith(("ws", "http")) for url in (relay, site)):
        return []
    written = []
    for twin in load(data_dir):
        path = data_dir / f"{twin.name}.toml"
        values = {"secret": twin.secret, "relays": [relay], "twins": site}
        # These values read the same in JSON and TOML.
        lines = [f"# Demo twin {twin.id}, {twin.name}: for this relay only."]
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        private_file.write(path, "\n".join(lines) + "\n")
        written.append(path)
    return written


def command(profile: Path) -> str:
    """Return a command line that the user can try with a profile."""
    program = Path(sys.executable).with_name(PROGRAM)
    name = _short(program) if program.exists() else PROGRAM
    return f"{name} ping -p {_short(profile)}"


def _short(path: Path) -> str:
    """Return a path as typed in the current folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
