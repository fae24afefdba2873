"""The runtime's metadata, version 14, generated from `chain.devchain.pallets`.

Clients learn from it the numbers of calls, events and errors, and the encoding of their fields.
"""

from __future__ import annotations

from typing import Final

from chain.devchain.pallets import NAMED, PALLETS, SIGNED_EXTENSIONS, Item, Pallet
from chain.devchain.types import Enum, TypeRegistry, Variant, text, vector
from proto.chain import scale

VERSION: Final = 14

_MAGIC: Final = b"meta"
_EXTRINSIC_VERSION: Final = 4
_HASHERS: Final = (
    "Blake2_128",
    "Blake2_256",
    "Blake2_128Concat",
    "Twox128",
    "Twox256",
    "Twox64Concat",
    "Identity",
)
_NO_DOCS: Final = vector([])
_NONE: Final = b"\0"
_SOME: Final = b"\1"
_RUNTIME: Final = "tfchain_runtime"


def build() -> bytes:
    """Return the metadata, as `state_getMetadata` returns it."""
    registry = TypeRegistry(
        {
            **NAMED,
            "RuntimeCall": _outer("RuntimeCall", [(each, each.calls) for each in PALLETS]),
            "RuntimeEvent": _outer("RuntimeEvent", [(each, each.events) for each in PALLETS]),
        }
    )
    pallets = vector([_pallet(registry, each) for each in PALLETS])
    extensions = [
        text(name) + _type_id(registry, name) + _type_id(registry, additional)
        for name, additional in SIGNED_EXTENSIONS
    ]
    extrinsic = (
        _type_id(registry, "UncheckedExtrinsic") + bytes([_EXTRINSIC_VERSION]) + vector(extensions)
    )
    runtime = _type_id(registry, "Runtime")
    # The registry comes first, but is complete only now.
    return _MAGIC + bytes([VERSION]) + registry.encoded() + pallets + extrinsic + runtime


def _outer(name: str, parts: list[tuple[Pallet, str]]) -> Enum:
    """Return the enum with one case for each pallet that has such a part."""
    cases = tuple(Variant(pallet.index, pallet.name, part) for pallet, part in parts if part)
    return Enum(f"{_RUNTIME}::{name}", cases)


def _pallet(registry: TypeRegistry, pallet: Pallet) -> bytes:
    storage = _NONE
    if pallet.storage:
        items = vector([_item(registry, item) for item in pallet.storage])
        storage = _SOME + text(pallet.name) + items
    constants = [
        text(each.name)
        + _type_id(registry, each.kind)
        + scale.compact("constant", len(each.value))
        + each.value
        + _NO_DOCS
        for each in pallet.constants
    ]
    return b"".join(
        (
            text(pallet.name),
            storage,
            _optional_type_id(registry, pallet.calls),
            _optional_type_id(registry, pallet.events),
            vector(constants),
            _optional_type_id(registry, pallet.errors),
            bytes([pallet.index]),
        )
    )


def _item(registry: TypeRegistry, item: Item) -> bytes:
    value = _type_id(registry, item.value)
    kind = b"\0" + value
    if item.key:
        hashers = vector([bytes([_HASHERS.index(item.hasher)])])
        kind = b"\1" + hashers + _type_id(registry, item.key) + value
    # An item without default still has bytes for it: those of the option None.
    optional = item.default is None
    default = _NONE if item.default is None else item.default
    modifier = b"\0" if optional else b"\1"
    return (
        text(item.name)
        + modifier
        + kind
        + scale.compact("default", len(default))
        + default
        + _NO_DOCS
    )


def _type_id(registry: TypeRegistry, kind: str) -> bytes:
    return scale.compact("type", registry.id_of(kind))


def _optional_type_id(registry: TypeRegistry, kind: str) -> bytes:
    return _SOME + _type_id(registry, kind) if kind else _NONE
