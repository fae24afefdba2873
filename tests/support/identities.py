"""Twins for tests. TEST KEYS ONLY: every secret here is derived from a twin's number.

A twin of the real network must never use one of them.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import time
from collections.abc import Iterable
from dataclasses import dataclass

from proto.identity import agreement, signing, tokens

TEST_DOMAIN = "localhost"
TOKEN_TTL_S = 300


@dataclass(frozen=True)
class Twin:
    """A twin with its test secret and the relays it lists."""

    id: int
    relays: str = TEST_DOMAIN
    key_type: signing.KeyType = signing.KeyType.SR25519

    @property
    def mini_secret(self) -> bytes:
        """TEST KEY: anyone can compute it."""
        return hashlib.sha256(f"rmb relay test key of twin {self.id}".encode()).digest()

    @functools.cached_property
    def signing_key(self) -> signing.SigningKey:
        """TEST KEY, see `mini_secret`."""
        return signing.SigningKey.from_mini_secret(self.mini_secret, self.key_type)

    @functools.cached_property
    def encryption_key(self) -> agreement.EncryptionKey:
        """TEST KEY, see `mini_secret`."""
        return agreement.EncryptionKey(self.mini_secret)

    @property
    def account(self) -> bytes:
        """Public key of the signing key."""
        return self.signing_key.account

    def token(
        self, sid: str | None = None, *, now: int | None = None, ttl_s: int = TOKEN_TTL_S
    ) -> str:
        """Return a token as released clients make it; `now` in unix seconds, default: the clock."""
        issued_at = int(time.time()) if now is None else now
        return tokens.issue(self.signing_key, self.id, sid, issued_at, ttl_s)


@functools.cache
def twin(number: int, relays: str = TEST_DOMAIN) -> Twin:
    """Return test twin `number`; the same object each time, since making keys costs time."""
    return Twin(number, relays)


def twins_csv(twins: Iterable[Twin]) -> str:
    """Return the text that `manage.py rmb_twin import` reads."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["id", "account", "pk", "relays"])
    for each in twins:
        public_key = each.encryption_key.public.hex()
        rows.writerow([each.id, f"0x{each.account.hex()}", f"0x{public_key}", each.relays])
    return text.getvalue()
