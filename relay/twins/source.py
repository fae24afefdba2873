"""Records of twins, and the interface of the sources that they come from.

A `TwinSource` is the registry of this site (`relay.twins.registry`) or the chain
(`relay.twins.chain_source`). Only `relay.twins.cache` queries it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from proto.federation.domains import fold
from proto.identity.bounds import ACCOUNT_BYTES, PUBLIC_KEY_BYTES

RELAY_SEPARATOR = "_"


class TwinRecord(NamedTuple):
    """One twin.

    Attributes:
        id: id of the twin.
        account: 32-byte public key, which verifies signatures.
        pk: 33-byte encryption key, if it has one.
        relays: canonical names of the relays it lists (`proto.federation.domains`), and unchanged
            what it lists that is not a relay name; empty if it lists nothing.
        version: number that grows with every change.
    """

    id: int
    account: bytes
    pk: bytes | None
    relays: tuple[str, ...]
    version: int


class TwinSourceError(Exception):
    """The source cannot answer now.

    Attributes:
        known: records of the requested twins that are known nevertheless; they may be old.
    """

    def __init__(self, text: str, known: Mapping[int, TwinRecord] | None = None) -> None:
        super().__init__(text)
        self.known = known or {}


class TwinSource(Protocol):
    """Interface of a source of twins.

    Attributes:
        away: why the last query had no answer; empty if it had one.
    """

    away: str

    async def fetch(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        """Look up several twins at once; those that do not exist are missing in the answer.

        Raises:
            TwinSourceError: the source cannot answer now.
        """

    async def highest_id(self) -> int:
        """Return the highest twin id, 0 if there are no twins.

        Raises:
            TwinSourceError: the source cannot answer now.
        """

    def figures(self) -> dict[str, float]:
        """Return the series for the metrics of the worker."""

    async def close(self) -> None:
        """Close connections and end threads."""


def open_source(config: Any) -> TwinSource:
    """Open the source that the configuration names."""
    # Not at the top: models need Django, and a relay with a registry needs no client of the chain.
    if config.twins.source == "tfchain":
        from relay.twins.chain_source import ChainSource

        return ChainSource(config.substrate.urls)
    from relay.twins.registry import RegistrySource

    return RegistrySource()


def split_relays(text: str) -> tuple[str, ...]:
    """Split the joined form of a twin's relays, which stay as they were entered."""
    return tuple(part for part in text.split(RELAY_SEPARATOR) if part)


def relay_names(text: str) -> tuple[str, ...]:
    """Split the joined form of a twin's relays into canonical names, each once."""
    return tuple(dict.fromkeys(map(fold, split_relays(text))))


def to_text(record: TwinRecord, fetched_at: int) -> str:
    """Return the entry of a twin in the shared cache.

    Space separated: unix time of the fetch, version, account, encryption key or `-`, relays.
    """
    pk = record.pk.hex() if record.pk else "-"
    relays = RELAY_SEPARATOR.join(record.relays)
    return f"{fetched_at} {record.version} {record.account.hex()} {pk} {relays}"


def from_text(twin: int, text: str) -> tuple[TwinRecord, int]:
    """Parse an entry of the shared cache.

    Returns:
        The record and the unix time at which it was fetched from the source.

    Raises:
        ValueError: the entry was not written by `to_text`.
    """
    fetched_at, version, account_hex, pk_hex, relays = text.split(" ", 4)
    account = bytes.fromhex(account_hex)
    pk = None if pk_hex == "-" else bytes.fromhex(pk_hex)
    if len(account) != ACCOUNT_BYTES or (pk is not None and len(pk) != PUBLIC_KEY_BYTES):
        raise ValueError("a key of the wrong size")
    record = TwinRecord(twin, account, pk, relay_names(relays), int(version))
    return record, int(fetched_at)
