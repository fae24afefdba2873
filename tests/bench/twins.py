"""Twins of the bench: test keys derived from the twin id, tokens, and the CSV to import.

These keys are public by construction: never use them for anything but tests.
"""

from __future__ import annotations

import csv
import hashlib
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from proto.identity import tokens
from proto.identity.agreement import EncryptionKey
from proto.identity.signing import KeyType, SigningKey

FIRST_TWIN = 1_000
TOKEN_TTL_S = 7_200
DOMAIN = "localhost"


def seed(twin: int) -> bytes:
    """Return the secret of a twin: a TEST KEY."""
    return hashlib.sha256(b"rmb bench test key %d" % twin).digest()


@cache
def signing_key(twin: int) -> SigningKey:
    """Return the signing key of a twin: a TEST KEY."""
    return SigningKey.from_mini_secret(seed(twin), KeyType.SR25519)


def token(twin: int) -> str:
    """Return a signed token of the twin's session without a session id."""
    return tokens.issue(signing_key(twin), twin, None, int(time.time()), TOKEN_TTL_S)


def write_csv(path: Path, homes: Mapping[int, str], *, pk: bool = False) -> None:
    """Write twins and their relays, in the format that `rmb_twin import` reads.

    Args:
        path: path of the file.
        homes: relay of each twin.
        pk: whether to write encryption keys, for programs that encrypt.
    """
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "account", "pk", "relays"))
        for twin, relay in homes.items():
            public = f"0x{EncryptionKey(seed(twin)).public.hex()}" if pk else ""
            writer.writerow((twin, "0x" + signing_key(twin).account.hex(), public, relay))


def sheet(folder: Path, twins: Sequence[int]) -> Path:
    """Write a file with these twins and their encryption keys, for programs that encrypt."""
    path = folder / "twins.csv"
    write_csv(path, dict.fromkeys(twins, DOMAIN), pk=True)
    return path


def secret(twin: int) -> str:
    """Return the secret of a twin in the form that programs accept."""
    return f"0x{seed(twin).hex()}"
