"""A twin as TFChain keeps it: `id, account, relay?, entities, pk?` in SCALE.

The same bytes are the storage value, and the payload of the events TwinStored and TwinUpdated.
`relay` and `pk` are bytes and stay bytes: general libraries show them as text when they happen to
be UTF-8 and as hex otherwise, and a text "0x41" cannot be told from the hex of "A".
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
    """An entity a twin belongs to. No relay or peer cares."""

    id: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class Twin:
    """A twin on the chain."""

    id: int
    """From 1 up; 0 is never a twin."""

    account: bytes
    """32 bytes; never changes."""

    relay: bytes | None = None
    """All its relays in one text: see `relays`."""

    entities: tuple[Entity, ...] = ()

    pk: bytes | None = None
    """Its encryption key, 33 bytes by convention; the chain checks nothing but the bound."""


def decode(data: bytes) -> Twin:
    """The twin in a storage value.

    Raises:
        ScaleError: not a twin, or something behind it.
        BoundError: a field above its bound.
    """
    reader = Reader(data)
    twin = read(reader)
    reader.finish("twin")
    return twin


def read(reader: Reader) -> Twin:
    """The twin that begins where `reader` stands.

    Raises:
        ScaleError: not a twin.
        BoundError: a field above its bound.
    """
    twin = reader.u32("twin.id")
    account = reader.fixed("twin.account_id", ACCOUNT_BYTES)
    relay = reader.option_blob("twin.relay", MAX_RELAY_BYTES)
    count = reader.compact("twin.entities", MAX_ENTITIES, "items")
    entities = tuple(_read_entity(reader) for _ in range(count))
    pk = reader.option_blob("twin.pk", MAX_PK_BYTES)
    return Twin(twin, account, relay, entities, pk)


def encode(twin: Twin) -> bytes:
    """The bytes of a twin.

    Raises:
        ScaleError: an id that is no u32, or an account of another size.
        BoundError: a field above its bound.
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
