"""The demo twins of embedded mode: three twins whose secrets were made on this machine.

They live in one private file of the data folder. The relay's start registers them; `make demo`
reads their secrets and plays them.
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
    """A twin that belongs to this data folder."""

    id: int
    name: str
    secret: str
    """Hex seed with 0x, the form every RMB client takes."""


def load_or_make(data_dir: Path) -> tuple[DemoTwin, ...]:
    """The demo twins of a data folder, made on first use."""
    path = data_dir / FILE_NAME
    if not path.exists():
        twins = [
            DemoTwin(number, name, f"0x{secrets.token_hex(32)}")
            for number, name in enumerate(NAMES, FIRST_ID)
        ]
        private_file.write(path, json.dumps([asdict(twin) for twin in twins], indent=2) + "\n")
    return load(data_dir)


def load(data_dir: Path) -> tuple[DemoTwin, ...]:
    """The demo twins of a data folder.

    Raises:
        FileNotFoundError: No relay was started there with --embedded.
    """
    entries = json.loads((data_dir / FILE_NAME).read_text())
    return tuple(DemoTwin(**entry) for entry in entries)
