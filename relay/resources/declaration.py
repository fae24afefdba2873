"""A resource, declared once: its REST operations, its pages, its commands and its reference.

    HOSTS = Resource(
        name="lattice_hosts", noun="lattice_host", path="lattice/hosts", word="hosts",
        title="Hosts", tag="lattice", action="lattice.view", summary="List hosts",
        schema=Shape("LatticeHostOut", "A host of the lattice."),
        fields=(Field("id", Text(), "Public key of the host.", look=Look.CODE), ...),
        orders=(Order("seen_at"),), order="-seen_at", fetch=in_memory(hosts, ...),
    )

A declaration names what a row holds, how a page of rows is fetched, and what can be done to a row
or a list. What each face makes of it is in `relay.resources.rest`, `console`, `command` and
`reference`. Everything is checked when the declaration is made, which is when its module is
imported: a mistake is a `DeclarationError` that names the resource and the part.

Modules of declarations import neither ninja nor the pages of the console: commands read them too.
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
    """Which rows are wanted.

    Attributes:
        filters: those that are given, read and within their bounds.
        order: one of the resource, perhaps with a minus.
    """

    filters: Values
    order: str
    limit: int
    cursor: str


class Shape(NamedTuple):
    """Name and meaning of a schema in the OpenAPI document."""

    name: str
    description: str


class Confirmation(NamedTuple):
    """What is asked before a verb is done.

    Attributes:
        title: names what is done to which object.
        text: what it does, in sentences.
        loses: what will be lost, each in some words.
    """

    title: str
    text: str = ""
    loses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Something that can be done.

    Attributes:
        name, noun: such as `kick` and `session`: the operation `kick_session` and the address
            named `session_kick` are called by them.
        word: sub-command of the command that has it; `kick-session` without one.
        title: of the button.
        summary, details: for REST and the help of commands.
        action: of the matrix.
        run: does it: called with the `Actor`, without a name, and the arguments by their names; it
            returns the values of `answer`.
        confirm: what the console and the terminal ask first, by the arguments that are known.
        done: tells, by the arguments and the answer, what was done; without the first capital.
        of_row: arguments that a row has; the verb is a button of rows then. None: not of this row.
        of_list: arguments that the filters of a list have; the verb is a button of the page then.
            None: not of this list.
        edits: it stores a row as a whole: rows have the button `Edit`, whose form has their values.
        danger: the button warns, a command asks unless it has `--yes`, and a call of an operator
            has to be confirmed.
        missing: REST answers 404 where the thing does not exist.
        path: in REST, with arguments in braces.
        page: of the console, the same.
        takes, gives: names of the schemas of its body and answer.
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
        """Return the names of the arguments in its path."""
        return parameters(resource.path_of(self, own))

    @property
    def known(self) -> tuple[Argument, ...]:
        """Arguments that no form asks for."""
        return tuple(each for each in self.arguments if not each.asked)


@dataclass(frozen=True, slots=True)
class Identity:
    """What names one row: it has a REST operation, a page and a command then.

    Attributes:
        name: of the parameter, such as `session`.
        get: returns the row of a value, or raises `NotFound`.
        summary: for REST.
        column: of the table, which leads to the page of the row.
        read: reads the value from a row; the attribute or the item of this name without it.
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
        """Read it from a row."""
        return read_of(row, self.name, self.read)


class Related(NamedTuple):
    """Rows of another list that the page of a row shows below it.

    Attributes:
        title: of the short table.
        resource: name of the list.
        filter: of that list, which the identity of the row is given to.
        without: columns that would say the same in each row.
    """

    title: str
    resource: str
    filter: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Console:
    """What only the pages of a resource have.

    Attributes:
        order: that of the table, where it is another than REST's.
        fixed: filters that the page sets.
        live: the table refreshes itself.
        table: id of the table, and name of its exported files; that of the resource without one.
        empty: is said in place of rows.
        tabs: the pages that stand side by side, names of addresses and their titles.
        title: of the page of a row; its noun and identity without it.
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
        name: of the list: the operation `list_<name>` and the address `console:<name>`.
        noun: of one row.
        title: of its page.
        summary, details: of its list, for REST, help and the reference.
        schema: name and meaning of a row's schema.
        path: in REST and the console.
        word: sub-command of the command that has it.
        action: of the matrix, to see it.
        order: of the list, where none is chosen.
        console: None: it has no page, or one that is made by hand.
        terminal: fields that a command prints, in this order.
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
        """Its path in REST and the console."""
        return self.path or self.name.replace("_", "/")

    @property
    def command(self) -> str:
        return self.word or self.name.replace("_", "-")

    def fields_of(self, where: Where) -> list[Field]:
        """Return the fields of a face."""
        return [each for each in self.fields if where in each.where]

    def filters_of(self, where: Where) -> list[Filter]:
        """Return the filters of a face."""
        return [each for each in self.filters if where in each.where]

    def orders_of(self, where: Where) -> list[str]:
        """Return the orders of a face, each also with a minus."""
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
        """Return a row as REST and JSON have it."""
        return {each.name: each.value(row) for each in self.fields_of(Where.DATA)}

    def path_of(self, verb: Verb, own: str) -> str:
        """Return the path of a verb: its own, or the one that follows from its arguments."""
        if own:
            return own
        known = [f"{{{each.name}}}" for each in verb.known if each.required]
        return "/".join([self.address, *known, verb.name])


def parameters(path: str) -> list[str]:
    """Return the names in braces of a path."""
    return _PARAMETER.findall(path)
