"""The hash chain of the audit log, without database or clock.

    hash(n) = HMAC-SHA256(key, canonical JSON of entry n with hash(n - 1))

The key is derived from the secret key of the site. An attacker who has only the database can change
rows, but cannot compute matching hashes. Cutting off entries at the end leaves no trace in the
rest; to detect it, a head (number and hash of the last entry) is stored elsewhere and verified as
well. Entries at the beginning may be missing if an entry of the log records that they were pruned
(`relay.audit.pruning`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

NO_HASH: Final = "0" * 64
"""Previous hash of the first entry."""

MAX_VALUE_BYTES: Final = 4096
"""Maximum size of each of the values before and after a change."""

PRUNE: Final = "audit.prune"
"""Action of an entry that records a pruning: all entries up to the head in its `after` are gone."""

_PURPOSE: Final = b"rmb relay audit chain 1"


class Record(NamedTuple):
    """The hashed fields of an entry, in the order of the canonical form."""

    number: int
    at: datetime
    actor: str
    face: str
    address: str
    action: str
    target: str
    before: str
    after: str
    previous: str


class Head(NamedTuple):
    """The last entry of a log, to be stored elsewhere. Its text form is `<number>:<hash>`."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Parse the text form of a head.

        Raises:
            ValueError: the text is not a head.
        """
        number, _, found = text.strip().partition(":")
        if not (number.isascii() and number.isdecimal() and len(number) <= 18):
            raise ValueError("a head is <number>:<hash>")
        if len(found) != len(NO_HASH) or set(found) - set("0123456789abcdef"):
            raise ValueError("the hash of a head is 64 hexadecimal digits")
        return cls(int(number), found)


EMPTY: Final = Head(0, NO_HASH)
"""The head of a log without entries."""


class Broken(Exception):
    """The log was changed; `number` is the first entry for which that is certain."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"entry {number}: {why}")
        self.number = number


def key_of(secret: str) -> bytes:
    """Derive the key of the chain from the secret key of the site."""
    return hmac.digest(secret.encode(), _PURPOSE, "sha256")


def hash_of(key: bytes, record: Record) -> str:
    """Return the hash of one entry."""
    at = record.at.astimezone(UTC).isoformat(timespec="microseconds")
    fields = [str(value) for value in record._replace(at=at)]  # type: ignore[arg-type]
    return hmac.new(key, canonical(fields).encode(), hashlib.sha256).hexdigest()


def canonical(value: Any) -> str:
    """Return a value as JSON in its only canonical form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def bounded(value: Any) -> str:
    """Return the canonical JSON of a value, or of its beginning and its size if it is too long."""
    text = canonical(value)
    if len(text) <= MAX_VALUE_BYTES:
        return text
    # Quoted again, quotes and backslashes double, and nothing else grows: the text is ASCII.
    start = text[: MAX_VALUE_BYTES // 2 - 100]
    return canonical({"cut": start, "size_bytes": len(text)})


def verify(
    keys: Sequence[bytes], entries: Iterable[tuple[Record, str]], anchors: Iterable[Head] = ()
) -> Head:
    """Verify a whole log.

    Args:
        keys: keys that entries may be hashed with, the current one first.
        entries: records with their stored hashes, by ascending number from the first.
        anchors: heads that the log had earlier; those of pruned entries are skipped, except for the
            last pruned one.

    Returns:
        The current head.

    Raises:
        Broken: the log was changed.
    """
    wanted = {anchor.number: anchor.hash for anchor in anchors if anchor.number}
    head = pruned = EMPTY
    said = True
    for record, found in entries:
        if head == EMPTY and record.number > 1:
            head = pruned = Head(record.number - 1, record.previous)
            said = False
            if wanted.pop(pruned.number, pruned.hash) != pruned.hash:
                raise Broken(pruned.number, "it is not the one that was the head")
            wanted = {number: each for number, each in wanted.items() if number > pruned.number}
        expected = head.number + 1
        if record.number != expected:
            raise Broken(expected, "it is missing" if record.number > expected else "it is twice")
        if record.previous != head.hash:
            raise Broken(expected, "it does not follow the entry before it")
        if not any(hmac.compare_digest(hash_of(key, record), found) for key in keys):
            raise Broken(expected, "it was changed, or was written with another secret key")
        anchored = wanted.pop(expected, found)
        if anchored != found:
            raise Broken(expected, "it is not the one that was the head")
        head = Head(expected, found)
        said = said or (record.action == PRUNE and _pruned_by(record) == pruned)
    if not said:
        raise Broken(1, "it is missing, and no entry says that it was pruned")
    if wanted:
        raise Broken(head.number + 1, f"it is missing: there was a head {max(wanted)}")
    return head


def _pruned_by(record: Record) -> Head | None:
    after = json.loads(record.after)
    return Head(after["number"], after["hash"]) if isinstance(after, dict) else None
