"""Parts of declared resources: fields of rows, filters and orders of lists, arguments of verbs.

Each part checks itself when it is made, so a mistake ends the import of its module with a
`DeclarationError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, StrEnum, auto
from typing import Any, Final

from relay.access import matrix
from relay.resources.values import Number, Real, Type

RESERVED: Final = frozenset(
    {"limit", "cursor", "order", "column", "export", "next"}
    | {"request", "query", "body", "json", "yes"}
)
"""Names with a meaning of their own in addresses, operations or commands."""
_NAME: Final = re.compile("[a-z][a-z0-9_]*")

Labels = Callable[[], Mapping[str, str]]


class DeclarationError(TypeError):
    """A declaration is wrong: a mistake of whoever wrote it."""


class Where(Flag):
    """The faces that have a field or a filter."""

    DATA = auto()
    """REST, and `--json` of commands."""
    CONSOLE = auto()
    TERMINAL = auto()
    """The text that commands print, and their options."""
    EVERYWHERE = DATA | CONSOLE | TERMINAL


class Unit(StrEnum):
    """What a number counts. Numbers without a unit are ids."""

    COUNT = "count"
    PER_SECOND = "per second"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes per second"
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    SHARE = "share of 1"


class Look(Enum):
    """How the console shows a text."""

    TEXT = auto()
    CODE = auto()
    """An id or a key."""
    LINE = auto()
    """A short text on one line."""
    STATE = auto()
    """`show` returns a `relay.dashboard.states.State`."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a row.

    Attributes:
        name: in REST, JSON and exported files.
        description: one sentence, which all faces show.
        title: of the column; of the name without one.
        heading: of the column in a terminal.
        unit: of a number.
        null: it may have no value.
        read: reads it from a row; the attribute or the item of its name without one.
        show: what the console shows instead, such as a state.
        labels: what the console shows for a value; asked once for a page.
        link: address of the page to which it leads; empty for none.
        shown: whether the column is shown before it is chosen; may depend on settings.
        quoted: strangers choose it: a terminal shows it in quotes.
    """

    name: str
    type: Type
    description: str
    title: str = ""
    heading: str = ""
    unit: Unit | None = None
    null: bool = False
    where: Where = Where.EVERYWHERE
    look: Look = Look.TEXT
    read: Callable[[Any], Any] | None = None
    show: Callable[[Any], Any] | None = None
    labels: Labels | None = None
    link: Callable[[Any], str] | None = None
    shown: bool | Callable[[], bool] = True
    quoted: bool = False

    def __post_init__(self) -> None:
        check(is_name(self.name), f"field {self.name!r}: is not a lower-case name")
        check_sentence(f"field {self.name}", self.description)
        figure = isinstance(self.type, Number | Real)
        check(not self.unit or figure, f"field {self.name}: only numbers have a unit")
        check(not isinstance(self.type, Real) or bool(self.unit),
               f"field {self.name}: a number with a fraction needs a unit")  # fmt: skip
        check(self.look is not Look.STATE or self.show is not None,
               f"field {self.name}: a state needs `show`")  # fmt: skip

    def value(self, row: Any) -> Any:
        """Read it from a row."""
        return read_of(row, self.name, self.read)

    def is_shown(self) -> bool:
        """Say whether its column is shown before it is chosen."""
        return self.shown() if callable(self.shown) else self.shown


@dataclass(frozen=True, slots=True)
class Filter:
    """Something that a list can be filtered by.

    Attributes:
        hint: of the console's field, such as `host or host:port`.
        labels: texts of the values to choose from; for a choice, the values themselves without it.
        positional: commands take it without the name of an option.
    """

    name: str
    type: Type
    description: str
    title: str = ""
    hint: str = ""
    labels: Labels | None = None
    where: Where = Where.EVERYWHERE
    positional: bool = False

    def __post_init__(self) -> None:
        check(is_name(self.name), f"filter {self.name!r}: is not a lower-case name")
        check(self.name not in RESERVED, f"filter {self.name}: the name has another meaning")
        check_sentence(f"filter {self.name}", self.description)


@dataclass(frozen=True, slots=True)
class Order:
    """Something that a list can be ordered by.

    Attributes:
        name: in REST, addresses and commands.
        field: of the console whose column is ordered by it; of the same name without one.
        where: faces that offer it.
    """

    name: str
    field: str = ""
    where: Where = Where.EVERYWHERE


@dataclass(frozen=True, slots=True)
class Argument:
    """What a verb needs to know.

    Attributes:
        required: without it, `default` is used.
        asked: the console's form asks for it; else the row or the list has it.
        labels: what the form shows for the values of a choice; the values themselves without it.
    """

    name: str
    type: Type
    description: str
    title: str = ""
    required: bool = True
    default: Any = None
    asked: bool = False
    labels: Labels | None = None

    def __post_init__(self) -> None:
        check(is_name(self.name), f"argument {self.name!r}: is not a lower-case name")
        check(self.name not in RESERVED, f"argument {self.name}: the name has another meaning")
        check_sentence(f"argument {self.name}", self.description)


def title_of(part: Field | Filter | Argument) -> str:
    """Return the title of a part: `messages_in` is `Messages in`."""
    return part.title or part.name.replace("_", " ").capitalize()


def read_of(row: Any, name: str, read: Callable[[Any], Any] | None) -> Any:
    """Read a value from a row: the item of a mapping or the attribute, unless it says how."""
    if read is not None:
        return read(row)
    return row[name] if isinstance(row, Mapping) else getattr(row, name)


def is_name(text: str) -> bool:
    """Say whether a text is a name: lower case, digits and underscores."""
    return bool(_NAME.fullmatch(text))


def check(holds: bool, text: str) -> None:
    """Go on only if a condition of a declaration holds.

    Raises:
        DeclarationError: it does not.
    """
    if not holds:
        raise DeclarationError(text)


def check_sentence(told: str, text: str) -> None:
    """Check that a description is a sentence."""
    check(text.endswith("."), f"{told}: its description {text!r} does not end with a full stop")


def check_action(told: str, action: str) -> None:
    """Check that an action is one of the matrix."""
    try:
        matrix.permission_of(action)
    except KeyError:
        raise DeclarationError(
            f"{told}: there is no action {action!r} in relay.access.matrix"
        ) from None


def check_unique(told: str, kind: str, names: Iterable[str]) -> None:
    """Check that no name comes twice."""
    seen: set[str] = set()
    for name in names:
        check(name not in seen, f"{told}: {kind} {name} is declared twice")
        seen.add(name)
