"""The demo twins of embedded mode: three twins whose secrets were made on this machine.

They live in one private file of the data folder. The relay's start registers them; `make demo`
reads their secrets and plays them.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

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
        _write(path, twins)
    return load(data_dir)


def load(data_dir: Path) -> tuple[DemoTwin, ...]:
    """The demo twins of a data folder.

    Raises:
        FileNotFoundError: No relay was started there with --embedded.
    """
    entries = json.loads((data_dir / FILE_NAME).read_text())
    return tuple(DemoTwin(**entry) for entry in entries)


def _write(path: Path, twins: Sequence[DemoTwin]) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump([asdict(twin) for twin in twins], file, indent=2)
        file.write("\n")
    draft.replace(path)
