"""A twin as TFChain stores it: `id, account, relay?, entities, pk?` in SCALE.

The same bytes are the storage value and the payload of the events TwinStored and TwinUpdated.
`relay` and `pk` are kept as bytes: general libraries show them as text if they happen to be UTF-8
and as hex otherwise, so a text "0x41" cannot be told from the hex of "A".
"""

from __future__ import annotations

from dataclasses import dataclass

from proto.chain import scale
from proto.chain.bounds import (
    ACCOUNT_BYTES,
    MAX_ENTITIES,
    MAX_ENTITY_SIGNATURE_BYTES,
    MAX_PK_BYTES,
    MAX_RELAY_BYTES,
)
from proto.chain.errors import BoundError
from proto.chain.scale import Reader


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity that a twin belongs to. Relays and peers do not use it."""

    id: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class Twin:
    """A twin on the chain."""

    id: int
    """Twin id, from 1; 0 is never a twin."""

    account: bytes
    """Account of 32 bytes; never changes."""

    relay: bytes | None = None
    """All relays of the twin in one text: see `relays`."""

    entities: tuple[Entity, ...] = ()

    pk: bytes | None = None
    """Encryption key, 33 bytes by convention; the chain checks nothing but the bound."""


def decode(data: bytes) -> Twin:
    """Return the twin in a storage value.

    Raises:
        ScaleError: not a twin, or bytes follow it.
        BoundError: a field is above its bound.
    """
    reader = Reader(data)
    twin = read(reader)
    reader.finish("twin")
    return twin


def read(reader: Reader) -> Twin:
    """Read the twin that begins at the position of `reader`.

    Raises:
        ScaleError: not a twin.
        BoundError: a field is above its bound.
    """
    twin = reader.u32("twin.id")
    account = reader.fixed("twin.account_id", ACCOUNT_BYTES)
    relay = reader.option_blob("twin.relay", MAX_RELAY_BYTES)
    count = reader.compact("twin.entities", MAX_ENTITIES, "items")
    entities = tuple(_read_entity(reader) for _ in range(count))
    pk = reader.option_blob("twin.pk", MAX_PK_BYTES)
    return Twin(twin, account, relay, entities, pk)


def encode(twin: Twin) -> bytes:
    """Encode a twin.

    Raises:
        ScaleError: the id is not a u32, or the account has another size.
        BoundError: a field is above its bound.
    """
    if len(twin.entities) > MAX_ENTITIES:
        raise BoundError("twin.entities", len(twin.entities), MAX_ENTITIES, "items")
    return b"".join(
        (
            scale.u32("twin.id", twin.id),
            scale.fixed("twin.account_id", twin.account, ACCOUNT_BYTES),
            scale.option_blob("twin.relay", twin.relay, MAX_RELAY_BYTES),
            scale.compact("twin.entities", len(twin.entities)),
            *(_encode_entity(entity) for entity in twin.entities),
            scale.option_blob("twin.pk", twin.pk, MAX_PK_BYTES),
        )
    )


def _read_entity(reader: Reader) -> Entity:
    entity = reader.u32("twin.entities.entity_id")
    return Entity(entity, reader.blob("twin.entities.signature", MAX_ENTITY_SIGNATURE_BYTES))


def _encode_entity(entity: Entity) -> bytes:
    return scale.u32("twin.entities.entity_id", entity.id) + scale.blob(
        "twin.entities.signature", entity.signature, MAX_ENTITY_SIGNATURE_BYTES
    )
