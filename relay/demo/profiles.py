"""Profiles of the demo twins, for the command line of a peer: `rmb ping -p data/alice.toml`.

One private file for each twin, beside its secret, written anew at each start since ports change.
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
        data_dir: where the twins are kept, and the profiles go.
        runtime: what the start tells other programs: relay_url and admin_url.

    Returns:
        The files; none when a peer could not use them: it needs both addresses.
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
    """What to type to see a peer work."""
    program = Path(sys.executable).with_name(PROGRAM)
    name = _short(program) if program.exists() else PROGRAM
    return f"{name} ping -p {_short(profile)}"


def _short(path: Path) -> str:
    """A path as one types it in the current folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
