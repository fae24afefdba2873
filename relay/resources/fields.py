"""Parts of declared resources: fields of rows, filters and orders of lists, arguments of verbs.

Each part checks itself when it is created, so a mistake stops the import of its module with a
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
"""Names that have another meaning in URLs, operations or commands."""
_NAME: Final = re.compile("[a-z][a-z0-9_]*")

Labels = Callable[[], Mapping[str, str]]


class DeclarationError(TypeError):
    """A declaration is invalid, which is a programming error."""


class Where(Flag):
    """The interfaces in which a field or a filter occurs."""

    DATA = auto()
    """REST, and `--json` of commands."""
    CONSOLE = auto()
    TERMINAL = auto()
    """The text that commands print, and the options of commands."""
    EVERYWHERE = DATA | CONSOLE | TERMINAL


class Unit(StrEnum):
    """Unit of a number. Numbers without a unit are ids."""

    COUNT = "count"
    PER_SECOND = "per second"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes per second"
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    SHARE = "share of 1"


class Look(Enum):
    """Presentation of a text in the console."""

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
        name: name in REST, JSON and exported files.
        description: one sentence, which all interfaces show.
        title: title of the column; empty: derived from the name.
        heading: title of the column in a terminal.
        unit: unit of a number.
        null: whether it may have no value.
        read: function that reads it from a row; None: read the attribute or item of its name.
        show: function that returns what the console shows instead, such as a state.
        labels: function that returns what the console shows for each value; called once for a page.
        link: function that returns the URL to which it links; empty: no link.
        shown: whether the column is shown before it is chosen; may depend on settings.
        quoted: whether the text comes from outside the relay: a terminal shows it in quotes.
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
        """Return the value of the field in a row."""
        return read_of(row, self.name, self.read)

    def is_shown(self) -> bool:
        """Return whether its column is shown before it is chosen."""
        return self.shown() if callable(self.shown) else self.shown


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of a list.

    Attributes:
        hint: hint in the console's input field, such as `host or host:port`.
        labels: function that returns labels of the values to choose from; None: a choice shows its
            values.
        positional: whether commands take it as a positional argument instead of an option.
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
    """An order of a list.

    Attributes:
        name: name in REST, URLs and commands.
        field: field whose column in the console is sorted by it; empty: the field of the same name.
        where: interfaces that offer it.
    """

    name: str
    field: str = ""
    where: Where = Where.EVERYWHERE


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a verb.

    Attributes:
        required: whether it must be given; otherwise `default` is used.
        asked: whether the console's form asks for it; otherwise the row or the list gives it.
        labels: function that returns labels for the values of a choice; None: the form shows the
            values.
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
    """Return the title of a part; by default, that of `messages_in` is `Messages in`."""
    return part.title or part.name.replace("_", " ").capitalize()


def read_of(row: Any, name: str, read: Callable[[Any], Any] | None) -> Any:
    """Read a value from a row, with `read` or else as the item of a mapping or the attribute."""
    if read is not None:
        return read(row)
    return row[name] if isinstance(row, Mapping) else getattr(row, name)


def is_name(text: str) -> bool:
    """Return whether a text is a name: lower-case letters, digits and underscores."""
    return bool(_NAME.fullmatch(text))


def check(holds: bool, text: str) -> None:
    """Check a condition of a declaration.

    Raises:
        DeclarationError: the condition is false.
    """
    if not holds:
        raise DeclarationError(text)


def check_sentence(told: str, text: str) -> None:
    """Check that a description ends with a full stop."""
    check(text.endswith("."), f"{told}: its description {text!r} does not end with a full stop")


def check_action(told: str, action: str) -> None:
    """Check that an action is in the matrix of actions."""
    try:
        matrix.permission_of(action)
    except KeyError:
        raise DeclarationError(
            f"{told}: there is no action {action!r} in relay.access.matrix"
        ) from None


def check_unique(told: str, kind: str, names: Iterable[str]) -> None:
    """Check that no name occurs twice."""
    seen: set[str] = set()
    for name in names:
        check(name not in seen, f"{told}: {kind} {name} is declared twice")
        seen.add(name)
