"""Public keys in lists of the lattice: names, links to pages, filters and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from django.urls import reverse

from proto.lattice.bounds import MAX_NAME_CHARS
from proto.lattice.errors import KeyFormatError
from proto.lattice.nkeys import KeyKind, decode_public
from relay.lattice import listing
from relay.resources.fields import Field, Filter, Look
from relay.resources.values import Choice, Text, Type

_PAGES: Final = {"N": "lattice_host", "M": "lattice_actor", "V": "lattice_provider"}
"""Names of URL patterns, by the first letter of the key."""


class Named(NamedTuple):
    """A row of a list, with the names of its keys.

    Attributes:
        row: row as the processes of the lattice report it.
        names: names of all hosts, actors and providers, by their public keys.
        id: id of the row, if Redis gives it one.
    """

    row: Any
    names: Mapping[str, str]
    id: str = ""


def named(rows: Iterable[Any]) -> list[Named]:
    """Return rows with the names of hosts, actors and providers."""
    names = listing.names()
    return [Named(row, names) for row in rows]


def matching(
    rows: Iterable[Named], fields: Iterable[Field], filters: Mapping[str, str]
) -> list[Named]:
    """Return the rows that match all filters: a choice exactly, a text in part."""
    wanted = [(each, filters[each.name]) for each in fields if each.name in filters]

    def matches(field: Field, row: Named, text: str) -> bool:
        value = str(field.value(row))
        exact = isinstance(field.type, Choice)
        return value == text if exact else text.lower() in value.lower()

    return [row for row in rows if all(matches(each, row, text) for each, text in wanted)]


def page_of(key: str, names: Mapping[str, str]) -> str:
    """Return the URL of the page of a host, actor or provider; empty if it is unknown."""
    name = _PAGES.get(key[:1], "")
    return reverse(f"console:{name}", args=[key]) if name and key in names else ""


def field_of(name: str, type_: Type, description: str, **more: Any) -> Field:
    """Return a field of named rows, which reads the attribute of its name or with `read`."""
    more.setdefault("read", lambda found: getattr(found.row, name))
    return Field(name, type_, description, **more)


def text_of(name: str, description: str, **more: Any) -> Field:
    """Return a field for a text from outside the relay."""
    return field_of(name, Text(), description, quoted=True, **more)


def key_of(name: str, description: str, **more: Any) -> Field:
    """Return a field for a public key, with a link to the page of its owner."""
    read = more.pop("read", lambda found: getattr(found.row, name))
    more.setdefault("link", lambda found: page_of(read(found), found.names))
    return text_of(name, description, look=Look.CODE, read=read, **more)


def name_of(name: str, what: str, key: Callable[[Any], str], **more: Any) -> Field:
    """Return a field for the name of a public key's owner."""
    return text_of(
        name, f"Name of the {what}; empty: unknown.",
        read=lambda found: found.names.get(key(found.row), ""),
        link=lambda found: found.names.get(key(found.row)) and page_of(key(found.row), found.names),
        **more,
    )  # fmt: skip


def filter_of(name: str, description: str, **more: Any) -> Filter:
    """Return a filter that matches a part of a text."""
    return Filter(name, Text(MAX_NAME_CHARS), description, hint="or a part of it", **more)


def form_of(*kinds: KeyKind) -> Callable[[str], None]:
    """Return a function that checks that a text is a public key of one of some kinds."""

    def check(text: str) -> None:
        try:
            decode_public(text, *kinds)
        except KeyFormatError as error:
            raise ValueError(str(error)) from None

    return check
