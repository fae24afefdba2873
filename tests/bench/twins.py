"""The bench's twins: test keys derived from the twin id, tokens, and the CSV to import.

These keys are public by construction: never use them for anything but tests.
"""

from __future__ import annotations

import csv
import hashlib
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from proto.identity import tokens
from proto.identity.signing import KeyType, SigningKey

FIRST_TWIN = 1_000
TOKEN_TTL_S = 7_200
DOMAIN = "localhost"


@cache
def signing_key(twin: int) -> SigningKey:
    """The test key of a twin."""
    seed = hashlib.sha256(b"rmb bench test key %d" % twin).digest()
    return SigningKey.from_mini_secret(seed, KeyType.SR25519)


def token(twin: int) -> str:
    """A signed token of the twin's session without a session id."""
    return tokens.issue(signing_key(twin), twin, None, int(time.time()), TOKEN_TTL_S)


def write_csv(path: Path, homes: Mapping[int, str]) -> None:
    """Write twins and the relay each lives on, in the form `rmb_twin import` reads."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "account", "pk", "relays"))
        for twin, relay in homes.items():
            writer.writerow((twin, "0x" + signing_key(twin).account.hex(), "", relay))
