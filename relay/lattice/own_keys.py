"""Keys and the twin of the bridge in embedded mode, generated on first use in the data folder.

lattice/cluster.seed    signs the bridge's invocations
lattice/provider.seed   is the key of the bridge as a provider
lattice/twin.secret     is that of the bridge's twin, which is in the registry
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
    """Generate the secrets that are missing.

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
    """Add the twin of the bridge to the registry."""
    # Imported here: models need Django to be set up, and the lattice's processes need no models.
    from relay.demo import registration

    registration.register([make(data_dir)], domain)


def key_in(path: Path, kind: KeyKind) -> str:
    """Return the public key of the seed in a file, which is generated if it is missing.

    Raises:
        KeyFormatError: the file does not contain a seed of this kind.
        OSError: the file cannot be read or written.
    """
    _make(path, lambda: _seed(kind))
    return KeyPair.of_seed(path.read_text().strip(), kind).public


def _seed(kind: KeyKind) -> str:
    return KeyPair.of_random(kind, secrets.token_bytes(32)).seed


def _make(path: Path, secret: Callable[[], str]) -> None:
    if not path.exists():
        private_file.write(path, secret() + "\n")
