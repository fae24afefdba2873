"""What the relay knows of a twin, and the port through which it learns it.

A `TwinSource` is the record: the registry of this site (`relay.twins.registry`) or the chain
(`relay.twins.chain_source`). It is asked only through `relay.twins.cache`.
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
        id: the twin's number.
        account: its 32-byte public key, which verifies signatures.
        pk: its 33-byte encryption key, if it has one.
        relays: canonical names of those it lists (`proto.federation.domains`), and what it lists
            beside them as it stands; empty when it lists nothing.
        version: grows with every change.
    """

    id: int
    account: bytes
    pk: bytes | None
    relays: tuple[str, ...]
    version: int


class TwinSourceError(Exception):
    """The source cannot answer now.

    Attributes:
        known: what is known of the wanted twins all the same; it may be old.
    """

    def __init__(self, text: str, known: Mapping[int, TwinRecord] | None = None) -> None:
        super().__init__(text)
        self.known = known or {}


class TwinSource(Protocol):
    """Where twins come from.

    Attributes:
        away: why the last question had no answer; empty when it had one.
    """

    away: str

    async def fetch(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        """Look up several twins at once; those that do not exist are missing in the answer.

        Raises:
            TwinSourceError: the source cannot answer now.
        """

    async def highest_id(self) -> int:
        """The highest twin id there is, 0 when there is none.

        Raises:
            TwinSourceError: the source cannot answer now.
        """

    def figures(self) -> dict[str, float]:
        """Series for the metrics of the worker."""

    async def close(self) -> None:
        """Give back connections and threads."""


def open_source(config: Any) -> TwinSource:
    """The source the configuration names."""
    # Not at the top: models need Django, and who reads the registry needs no client of the chain.
    if config.twins.source == "tfchain":
        from relay.twins.chain_source import ChainSource

        return ChainSource(config.substrate.urls)
    from relay.twins.registry import RegistrySource

    return RegistrySource()


def split_relays(text: str) -> tuple[str, ...]:
    """Return the relays of a twin out of their joined form, as they were entered."""
    return tuple(part for part in text.split(RELAY_SEPARATOR) if part)


def relay_names(text: str) -> tuple[str, ...]:
    """Return the relays of a twin, each once, by the canonical name that it is worked with."""
    return tuple(dict.fromkeys(map(fold, split_relays(text))))


def to_text(record: TwinRecord, fetched_at: int) -> str:
    """The entry of a twin in the shared cache.

    Space separated: unix time of the fetch, version, account, encryption key or `-`, relays.
    """
    pk = record.pk.hex() if record.pk else "-"
    relays = RELAY_SEPARATOR.join(record.relays)
    return f"{fetched_at} {record.version} {record.account.hex()} {pk} {relays}"


def from_text(twin: int, text: str) -> tuple[TwinRecord, int]:
    """Reads what `to_text` wrote.

    Returns:
        The record and the unix time it was fetched from the source.

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
