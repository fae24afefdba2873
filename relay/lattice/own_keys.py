"""Keys and the twin of the bridge in embedded mode, made on first use in the data folder.

lattice/cluster.seed    signs the bridge's invocations
lattice/provider.seed   of the bridge as a provider
lattice/twin.secret     of the bridge's twin, which is in the registry
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proto.lattice.nkeys import KeyKind, KeyPair
from relay.demo.identities import FIRST_ID, NAMES, DemoTwin
from relay.server import private_file

FOLDER: Final = "lattice"
CLUSTER_FILE: Final = "cluster.seed"
PROVIDER_FILE: Final = "provider.seed"
TWIN_FILE: Final = "twin.secret"
TWIN_NAME: Final = "lattice"
TWIN_ID: Final = FIRST_ID + len(NAMES)


def make(data_dir: Path) -> DemoTwin:
    """Make what is missing.

    Returns:
        The twin of the bridge.
    """
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    _make(folder / CLUSTER_FILE, lambda: _seed(KeyKind.CLUSTER))
    _make(folder / PROVIDER_FILE, lambda: _seed(KeyKind.PROVIDER))
    _make(folder / TWIN_FILE, lambda: f"0x{secrets.token_hex(32)}")
    return DemoTwin(TWIN_ID, TWIN_NAME, (folder / TWIN_FILE).read_text().strip())


def register(data_dir: Path, domain: str) -> None:
    """Enter the twin of the bridge into the registry."""
    # Not at the top: models exist only once Django is set up, and the processes need none.
    from relay.demo import registration

    registration.register([make(data_dir)], domain)


def key_in(path: Path, kind: KeyKind) -> str:
    """Return the public key of the seed in a file, which is made if there is none.

    Raises:
        KeyFormatError: the file has something else.
        OSError: it cannot be read or written.
    """
    _make(path, lambda: _seed(kind))
    return KeyPair.of_seed(path.read_text().strip(), kind).public


def _seed(kind: KeyKind) -> str:
    return KeyPair.of_random(kind, secrets.token_bytes(32)).seed


def _make(path: Path, secret: Callable[[], str]) -> None:
    if not path.exists():
        private_file.write(path, secret() + "\n")
