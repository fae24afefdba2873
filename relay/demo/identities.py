"""The demo twins of embedded mode: three twins whose secrets were generated on this host.

One private file of the data folder contains them. The relay registers them at its start; `make
demo` reads their secrets and acts for them.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from relay.server import private_file

FILE_NAME: Final = "demo-twins.json"
NAMES: Final = ("alice", "bob", "carol")
FIRST_ID: Final = 101


@dataclass(frozen=True, slots=True)
class DemoTwin:
    """A demo twin, which belongs to one data folder."""

    id: int
    name: str
    secret: str
    """Hex seed with 0x, the form that every RMB client accepts."""


def load_or_make(data_dir: Path) -> tuple[DemoTwin, ...]:
    """Return the demo twins of a data folder, and generate them on first use."""
    path = data_dir / FILE_NAME
    if not path.exists():
        twins = [
            DemoTwin(number, name, f"0x{secrets.token_hex(32)}")
            for number, name in enumerate(NAMES, FIRST_ID)
        ]
        private_file.write(path, json.dumps([asdict(twin) for twin in twins], indent=2) + "\n")
    return load(data_dir)


def load(data_dir: Path) -> tuple[DemoTwin, ...]:
    """Return the demo twins of a data folder.

    Raises:
        FileNotFoundError: No relay was started there with --embedded.
    """
    entries = json.loads((data_dir / FILE_NAME).read_text())
    return tuple(DemoTwin(**entry) for entry in entries)
