"""The types that a runtime's metadata describes: parsed from text, numbered, encoded.

`TypeRegistry.id_of("Option<Vec<u8>>")` returns the number of a type and registers all types that it
consists of. The text may be a primitive, `[T; n]`, `(A, B)`, `Vec<T>`, `Compact<T>`, `Option<T>`,
`BoundedVec<T, n>`, or a name of the `NAMED` types (`chain.devchain.pallets`). The encoding is that
of the portable registry of metadata version 14 (scale-info).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proto.chain import scale

_PRIMITIVES: Final = ("bool", "char", "str", "u8", "u16", "u32", "u64", "u128")
"""Primitives in the order of scale-info's `TypeDefPrimitive`, as far as they are used."""

_COMPOSITE, _VARIANT, _SEQUENCE, _ARRAY, _TUPLE, _PRIMITIVE, _COMPACT = range(7)
_NO_TYPE: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class Struct:
    """A type with fields."""

    path: str
    """Path in Rust, with `::` between the parts: libraries recognise some types by their path."""

    fields: str = ""
    """`name: Type, name: Type` or `Type, Type`."""

    parameters: str = ""
    """Generic parameters, `T: Type`; a parameter without type is a Rust constant."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One case of an enum."""

    index: int
    name: str
    fields: str = ""
    """Fields, in the form of those of a struct."""


@dataclass(frozen=True, slots=True)
class Enum:
    """A type with cases."""

    path: str
    variants: tuple[Variant, ...]
    parameters: str = ""


def variants(*names: str) -> tuple[Variant, ...]:
    """Return cases numbered from 0, each given as `Name` or `Name(fields)`."""
    found = []
    for index, case in enumerate(names):
        name, _, rest = case.partition("(")
        found.append(Variant(index, name, rest.removesuffix(")")))
    return tuple(found)


class TypeRegistry:
    """Registry that numbers types in the order of first use; the same description gives the same
    bytes.
    """

    def __init__(self, named: Mapping[str, Struct | Enum]) -> None:
        self._named = named
        self._ids: dict[str, int] = {}
        self._encoded: list[bytes] = []

    def id_of(self, kind: str) -> int:
        """Return the number of the type that `kind` describes.

        Raises:
            KeyError: it names a type that is not declared.
        """
        kind = kind.strip()
        known = self._ids.get(kind)
        if known is not None:
            return known
        # The number is assigned before those of the parts, as a type may contain itself.
        number = self._ids[kind] = len(self._encoded)
        self._encoded.append(b"")
        self._encoded[number] = self._encode(kind)
        return number

    def encoded(self) -> bytes:
        """Return the registry as encoded in the metadata."""
        return _compact(len(self._encoded)) + b"".join(
            _compact(number) + each for number, each in enumerate(self._encoded)
        )

    def _encode(self, kind: str) -> bytes:
        if kind in _PRIMITIVES:
            return _type("", b"", _PRIMITIVE, bytes([_PRIMITIVES.index(kind)]))
        if kind.startswith("["):
            item, _, length = kind[1:-1].rpartition(";")
            return _type(
                "", b"", _ARRAY, int(length).to_bytes(4, "little") + self._compact_id(item)
            )
        if kind.startswith("("):
            members = split_fields(kind[1:-1])
            return _type("", b"", _TUPLE, vector([self._compact_id(each) for each in members]))
        name, _, inside = kind.partition("<")
        inside = inside.removesuffix(">")
        if name == "Vec":
            return _type("", b"", _SEQUENCE, self._compact_id(inside))
        if name == "Compact":
            return _type("", b"", _COMPACT, self._compact_id(inside))
        if name == "Option":
            cases = self._variants((Variant(0, "None"), Variant(1, "Some", inside)))
            return _type("Option", self._parameters(f"T: {inside}"), _VARIANT, cases)
        if name == "BoundedVec":
            item, _bound = split_fields(inside)
            path = "bounded_collections::bounded_vec::BoundedVec"
            fields = self._fields(f"Vec<{item}>")
            return _type(path, self._parameters(f"T: {item}, S"), _COMPOSITE, fields)
        declared = self._named[kind]
        parameters = self._parameters(declared.parameters)
        if isinstance(declared, Struct):
            return _type(declared.path, parameters, _COMPOSITE, self._fields(declared.fields))
        return _type(declared.path, parameters, _VARIANT, self._variants(declared.variants))

    def _compact_id(self, kind: str) -> bytes:
        return _compact(self.id_of(kind))

    def _parameters(self, declared: str) -> bytes:
        found = []
        for each in split_fields(declared):
            name, colon, kind = each.partition(":")
            kind_id = b"\x01" + self._compact_id(kind) if colon else _NO_TYPE
            found.append(text(name) + kind_id)
        return vector(found)

    def _fields(self, declared: str) -> bytes:
        found = []
        for each in split_fields(declared):
            name, kind = _named_field(each)
            label = b"\x01" + text(name) if name else b"\x00"
            type_name = b"\x01" + text(kind)
            found.append(label + self._compact_id(kind) + type_name + vector([]))
        return vector(found)

    def _variants(self, cases: tuple[Variant, ...]) -> bytes:
        return vector(
            [
                text(case.name) + self._fields(case.fields) + bytes([case.index]) + vector([])
                for case in cases
            ]
        )


def split_fields(declared: str) -> list[str]:
    """Split a list at its commas, except those inside brackets."""
    parts, depth, start = [], 0, 0
    for position, sign in enumerate(declared):
        if sign in "<([":
            depth += 1
        elif sign in ">)]":
            depth -= 1
        elif sign == "," and not depth:
            parts.append(declared[start:position])
            start = position + 1
    parts.append(declared[start:])
    return [part.strip() for part in parts if part.strip()]


def _named_field(declared: str) -> tuple[str, str]:
    name, separator, kind = declared.partition(": ")
    return (name, kind) if separator else ("", declared)


def _type(path: str, parameters: bytes, kind: int, definition: bytes) -> bytes:
    parts = [text(part) for part in path.split("::")] if path else []
    return vector(parts) + (parameters or vector([])) + bytes([kind]) + definition + vector([])


def vector(items: Sequence[bytes]) -> bytes:
    """Encode a vector of encoded items."""
    return _compact(len(items)) + b"".join(items)


def text(value: str) -> bytes:
    """Encode a text in SCALE."""
    raw = value.encode()
    return _compact(len(raw)) + raw


def _compact(number: int) -> bytes:
    return scale.compact("metadata", number)
