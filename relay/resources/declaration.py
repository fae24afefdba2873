"""A resource that is declared once for its REST operations, pages, commands and reference.

    HOSTS = Resource(
        name="lattice_hosts", noun="lattice_host", path="lattice/hosts", word="hosts",
        title="Hosts", tag="lattice", action="lattice.view", summary="List hosts",
        schema=Shape("LatticeHostOut", "A host of the lattice."),
        fields=(Field("id", Text(), "Public key of the host.", look=Look.CODE), ...),
        orders=(Order("seen_at"),), order="-seen_at", fetch=in_memory(hosts, ...),
    )

A declaration defines what a row contains, how a page of rows is fetched, and which verbs apply to a
row or to the list. The interfaces built from it are in `relay.resources.rest`, `console`, `command`
and `reference`. Everything is checked when the declaration is created, that is, when its module is
imported: a mistake raises a `DeclarationError` that names the resource and the part.

Modules of declarations import neither ninja nor the pages of the console, because commands import
them too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from relay.ops.paging import Page
from relay.resources.fields import (
    Argument,
    DeclarationError,
    Field,
    Filter,
    Order,
    Where,
    check,
    check_action,
    check_sentence,
    check_unique,
    is_name,
    read_of,
)
from relay.resources.values import Type

METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
_WORD: Final = re.compile("[a-z][a-z0-9-]*")
_PARAMETER: Final = re.compile(r"\{(\w+)\}")

Values = Mapping[str, Any]


class Ask(NamedTuple):
    """Selection of rows to fetch.

    Attributes:
        filters: values of the given filters, parsed and within their bounds.
        order: an order of the resource, with or without a minus sign.
    """

    filters: Values
    order: str
    limit: int
    cursor: str


class Shape(NamedTuple):
    """Name and description of a schema in the OpenAPI document."""

    name: str
    description: str


class Confirmation(NamedTuple):
    """Question that is asked before a verb runs.

    Attributes:
        title: names the verb and its object.
        text: what the verb does, in sentences.
        loses: what will be lost, a few words for each thing.
    """

    title: str
    text: str = ""
    loses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation on a row or on a list.

    Attributes:
        name, noun: such as `kick` and `session`, which name the operation `kick_session` and the
            URL `session_kick`.
        word: sub-command in the management command; empty: `kick-session`.
        title: text of the button.
        summary, details: description for REST and for the help of commands.
        action: action of the matrix, which gives the permission.
        run: function that does it. It is called with the `Actor` as a positional argument and the
            verb's arguments as keywords, and returns the values of `answer`.
        confirm: function that returns the question to ask, from the arguments that are known.
        done: function that returns a sentence about what was done, from the arguments and the
            answer; without the first capital.
        of_row: function that returns the arguments that a row gives, or None if the verb does not
            apply to the row. If set, rows have a button for the verb.
        of_list: function that returns the arguments that the filters of a list give, or None if the
            verb does not apply to the list. If set, the page has a button for the verb.
        edits: whether it stores a row as a whole. If so, rows have the button `Edit`, whose form
            contains their values.
        danger: whether it is dangerous: the button warns, a command asks unless it has `--yes`, and
            a call of an operator must be confirmed.
        missing: whether REST answers 404 if the object does not exist.
        path: path in REST, with arguments in braces.
        page: path in the console, likewise.
        takes, gives: schemas of its body and answer.
    """

    name: str
    noun: str
    title: str
    summary: str
    action: str
    run: Callable[..., Values]
    confirm: Callable[[Values], Confirmation]
    done: Callable[[Values, Values], str]
    details: str = ""
    word: str = ""
    arguments: tuple[Argument, ...] = ()
    answer: tuple[Field, ...] = ()
    of_row: Callable[[Any], Values | None] | None = None
    of_list: Callable[[Values], Values | None] | None = None
    edits: bool = False
    danger: bool = False
    missing: bool = False
    method: str = "POST"
    path: str = ""
    page: str = ""
    takes: Shape | None = None
    gives: Shape | None = None

    def __post_init__(self) -> None:
        told = f"verb {self.name} of {self.noun}"
        check_action(told, self.action)
        check(bool(_WORD.fullmatch(self.command)), f"{told}: {self.command!r} is not a word")
        check_unique(told, "argument", (each.name for each in self.arguments))
        check(self.method in METHODS, f"{told}: the method must be one of {', '.join(METHODS)}")
        names = {each.name for each in self.arguments}
        for path in (self.path, self.page):
            unknown = set(_PARAMETER.findall(path)) - names
            check(not unknown, f"{told}: {path!r} has no argument {', '.join(sorted(unknown))}")
        check(not (self.of_row and self.of_list), f"{told}: is it of a row or of the list?")
        try:
            inspect.signature(self.run).bind(None, **dict.fromkeys(names))
        except TypeError as error:
            raise DeclarationError(f"{told}: `run` does not take its arguments: {error}") from None

    @property
    def operation(self) -> str:
        return f"{self.name}_{self.noun}"

    @property
    def command(self) -> str:
        return self.word or self.operation.replace("_", "-")

    def in_path(self, resource: Resource, own: str) -> list[str]:
        """Return the names of the arguments in one of its paths."""
        return parameters(resource.path_of(self, own))

    @property
    def known(self) -> tuple[Argument, ...]:
        """Arguments that are known from the row or the list, so that no form asks for them."""
        return tuple(each for each in self.arguments if not each.asked)


@dataclass(frozen=True, slots=True)
class Identity:
    """The value that identifies a row, which then has a REST operation, a page and a command.

    Attributes:
        name: name of the parameter, such as `session`.
        get: function that returns the row with a value, or raises `NotFound`.
        summary: summary for REST.
        column: column of the table that links to the page of the row.
        read: function that reads the value from a row; None: read the attribute or item of this
            name.
    """

    name: str
    type: Type
    description: str
    get: Callable[[Any], Any]
    summary: str
    column: str
    read: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        check(is_name(self.name), f"identity {self.name!r}: is not a lower-case name")
        check_sentence(f"identity {self.name}", self.description)

    def value(self, row: Any) -> Any:
        """Return the identity of a row."""
        return read_of(row, self.name, self.read)


class Related(NamedTuple):
    """Rows of another list that are shown on the page of a row.

    Attributes:
        title: title of the short table.
        resource: name of the list.
        filter: filter of that list, which gets the identity of the row.
        without: columns to omit, because they have the same value in each row.
    """

    title: str
    resource: str
    filter: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Console:
    """Options for the pages of a resource.

    Attributes:
        order: order of the table, if it differs from that of REST.
        fixed: values of filters that the page sets.
        live: whether the table refreshes itself.
        table: id of the table, and name of its exported files; empty: derived from the resource.
        empty: text that is shown if there are no rows.
        tabs: function that returns the pages to show as tabs: URL names and titles.
        title: function that returns the title of a row's page; None: its noun and identity.
        related: lists of which the page of a row shows some rows.
    """

    order: str = ""
    fixed: Values | None = None
    live: bool = False
    table: str = ""
    empty: str = "Nothing here"
    tabs: Callable[[], Mapping[str, str]] | None = None
    title: Callable[[Any], str] | None = None
    related: tuple[Related, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind of rows that operators list.

    Attributes:
        name: name of the list, for the operation `list_<name>` and the URL `console:<name>`.
        noun: name of one row.
        title: title of its page.
        summary, details: description of its list, for REST, help and the reference.
        schema: name and description of a row's schema.
        path: path in REST and the console.
        word: sub-command in the management command.
        action: action of the matrix that permits to see it.
        order: order of the list if none is chosen.
        console: options of its pages; None: it has no page, or a hand-written one.
        terminal: names of the fields that a command prints, in this order.
    """

    name: str
    noun: str
    title: str
    summary: str
    schema: Shape
    tag: str
    action: str
    fields: tuple[Field, ...]
    orders: tuple[Order, ...]
    order: str
    fetch: Callable[[Ask], Page[Any]]
    details: str = ""
    path: str = ""
    word: str = ""
    filters: tuple[Filter, ...] = ()
    identity: Identity | None = None
    verbs: tuple[Verb, ...] = ()
    console: Console | None = Console()
    terminal: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            self._check()
        except DeclarationError as error:
            raise DeclarationError(f"resource {self.name}: {error}") from None

    def _check(self) -> None:
        check(is_name(self.name), "its name is not a lower-case name")
        check(bool(_WORD.fullmatch(self.command)), f"{self.command!r} is not a word of a command")
        check(not self.address.startswith("/") and not self.address.endswith("/"),
               f"path {self.address!r}: no slash at its ends")  # fmt: skip
        check_action("the list", self.action)
        for face in (Where.DATA, Where.CONSOLE, Where.TERMINAL):
            check_unique(f"{face.name}", "field", (each.name for each in self.fields_of(face)))
        check_unique("the list", "filter", (each.name for each in self.filters))
        check_unique("the list", "verb", (each.operation for each in self.verbs))
        check_unique("the list", "order", (each.name for each in self.orders))
        names = {each.name for each in self.orders}
        for order in (self.order, (self.console and self.console.order) or self.order):
            check(
                order.removeprefix("-") in names,
                f"order {order!r}: must be one of {', '.join(sorted(names))}",
            )
        unknown = names - set(getattr(self.fetch, "orders", names))
        check(not unknown, f"`fetch` does not know the order {', '.join(sorted(unknown))}")
        for face in (Where.DATA, Where.TERMINAL):
            check(self.order in self.orders_of(face), f"order {self.order!r}: not of {face.name}")
        printed = {each.name for each in self.fields_of(Where.TERMINAL)}
        for name in self.terminal:
            check(name in printed, f"there is no field {name!r} for the terminal")
        columns = {each.name for each in self.fields_of(Where.CONSOLE)}
        led = (self.identity.column,) if self.identity else ()
        for verb in self.verbs:
            asked = {each.name for each in verb.arguments if each.asked}
            named = self.identity is not None and self.identity.name in asked
            check(named or not verb.edits, f"verb {verb.name}: it does not ask for the identity")
        for name in (*led, *(each.field for each in self.orders if each.field)):
            check(name in columns, f"there is no column {name!r}")
        fixed = set(self.console.fixed or ()) if self.console else set()
        unknown = fixed - {each.name for each in self.filters}
        check(not unknown, f"there is no filter {', '.join(sorted(unknown))}")

    @property
    def address(self) -> str:
        """Path in REST and the console."""
        return self.path or self.name.replace("_", "/")

    @property
    def command(self) -> str:
        return self.word or self.name.replace("_", "-")

    def fields_of(self, where: Where) -> list[Field]:
        """Return the fields that an interface has."""
        return [each for each in self.fields if where in each.where]

    def filters_of(self, where: Where) -> list[Filter]:
        """Return the filters that an interface has."""
        return [each for each in self.filters if where in each.where]

    def orders_of(self, where: Where) -> list[str]:
        """Return the orders that an interface has, each also with a minus sign."""
        names = [each.name for each in self.orders if where in each.where]
        return [*names, *(f"-{each}" for each in names)]

    def columns(self) -> list[Field]:
        """Return the fields that a command prints."""
        wanted = self.terminal or [
            each.name for each in self.fields_of(Where.TERMINAL) if each.shown is not False
        ]
        offered = {each.name: each for each in self.fields_of(Where.TERMINAL)}
        return [offered[name] for name in wanted]

    def data(self, row: Any) -> dict[str, Any]:
        """Return the values of a row for REST and JSON."""
        return {each.name: each.value(row) for each in self.fields_of(Where.DATA)}

    def path_of(self, verb: Verb, own: str) -> str:
        """Return the given path of a verb; if empty, the one derived from its arguments."""
        if own:
            return own
        known = [f"{{{each.name}}}" for each in verb.known if each.required]
        return "/".join([self.address, *known, verb.name])


def parameters(path: str) -> list[str]:
    """Return the names in braces in a path."""
    return _PARAMETER.findall(path)
