"""Tables of the console: what can be ordered, filtered, chosen, paged through and exported.

A page declares columns and filters and gives a function that fetches a page of rows:

    def fetch(ask: Ask) -> Page[Row]: ...
    table = Table(request, "queues", COLUMNS, fetch, order="-messages", filters=FILTERS)
    return respond(request, table, "relay_dashboard/queues.html", "Queues")

Everything the operator chose stands in the address, so that a link shows the same to somebody else.
A live table asks for itself again (`HX-Target` names it) and gets the table alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse

from relay.access.errors import Away, Invalid, ServiceError
from relay.dashboard import exports, pages
from relay.dashboard.figures import Kind
from relay.ops import keyset
from relay.ops.paging import Page
from relay.rest.lines import lines

Record = TypeVar("Record", bound=Model)

LIMITS: Final = (25, 50, 100, 250)
DEFAULT_LIMIT: Final = 50
EXPORT_STEP: Final = 1000
MAX_EXPORT: Final = 100_000
"""Rows of one export; whoever needs more takes the REST interface or the commands."""
SHORT_LIMIT: Final = 5
"""Rows of a short table, which stands beside others and leads to the whole one."""
MANY_COLUMNS: Final = 9
"""From here on buttons get out of the way of what they stand beside."""
MIN_REFRESH_MS: Final = 2000
MAX_REFRESH_MS: Final = 60_000
REFRESH_SHARE: Final = 50
"""A table refreshes itself so seldom that making it takes a fiftieth of the time at most: ten
consoles that look at the largest lists must not slow the relay."""
MAX_DIGITS: Final = 18
"""Of a number to filter by: the database takes no larger ones."""
FORMS: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


class Cell(StrEnum):
    """What a column holds beside figures."""

    TEXT = "text"
    CODE = "code"
    """An id or a key: cut where it is too long, whole on hover."""
    LINE = "line"
    """A short text that stays on one line, such as a day."""
    STATE = "state"
    MOMENT = "moment"
    """A time: a datetime, or unix seconds."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        key: its value in `Row.values`, and its name in exports and addresses.
        order: what `Ask.order` says for it; empty where nothing can be ordered by it.
        optional: shown only when it is chosen.
        hint: what it means, on hover.
    """

    key: str
    title: str
    kind: Cell | Kind = Cell.TEXT
    order: str = ""
    optional: bool = False
    hint: str = ""

    @property
    def is_figure(self) -> bool:
        return isinstance(self.kind, Kind)

    @property
    def largest_first(self) -> bool:
        """Numbers and times are wanted with the largest and latest first, words with the first."""
        return self.is_figure or self.kind is Cell.MOMENT


@dataclass(frozen=True, slots=True)
class Action:
    """A button of a row or of a page.

    Attributes:
        asks: it leads to a question (see `relay.dashboard.acts`), and not just to another page.
        download: it leads to a file.
    """

    label: str
    url: str
    danger: bool = False
    asks: bool = True
    download: bool = False


class Tab(NamedTuple):
    """One of the lists a page has in turn."""

    label: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A row.

    Attributes:
        values: by the columns' keys; plain values, as an export writes them.
        links: where the cells lead, by the columns' keys.
    """

    values: Mapping[str, Any]
    links: Mapping[str, str] = field(default_factory=dict)
    actions: Sequence[Action] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """Something to filter by.

    Attributes:
        choices: (value, label); a text field without them.
    """

    name: str
    label: str
    choices: Sequence[tuple[str, str]] = ()
    hint: str = ""
    value: str = ""


class Ask(NamedTuple):
    """Which rows are wanted.

    Attributes:
        filters: the values given, by name; empty where none is.
        order: a column's, perhaps with a minus.
    """

    filters: Mapping[str, str]
    order: str
    limit: int
    cursor: str

    def number(self, name: str) -> int | None:
        """What a filter for a number says.

        Raises:
            Invalid: it is none.
        """
        return whole_number(name, self.filters[name])

    def page(
        self, rows: QuerySet[Record], orders: Mapping[str, str], nullable: Collection[str] = ()
    ) -> Page[Record]:
        """These rows of the database (see `relay.ops.keyset.page`).

        Raises:
            Invalid, Away
        """
        return keyset.page(
            rows, orders, order=self.order, limit=self.limit, cursor=self.cursor, nullable=nullable
        )

    def choice(self, name: str, values: Mapping[str, Any]) -> Any:
        """What stands for the value of a filter; None where none is chosen."""
        return values.get(self.filters[name])


Fetch = Callable[[Ask], Page[Row]]


class Head(NamedTuple):
    """A column's head: where a click on it leads, and how the table is ordered by it now."""

    column: Column
    href: str
    sorted: str


def whole_number(name: str, text: str) -> int | None:
    """What a parameter for a number says; None where it is empty.

    Raises:
        Invalid: it is none.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise Invalid(fields={name: "must be a whole number"})
    return int(text)


def given(request: HttpRequest, name: str) -> str:
    """What a parameter of the address says; empty where it is not there.

    Raises:
        Invalid: it holds a NUL, which PostgreSQL takes in no text.
    """
    text = request.GET.get(name, "").strip()
    if "\0" in text:
        raise Invalid(fields={name: "holds a NUL character"})
    return text


def refresh_ms(took_s: float) -> int:
    """How often something refreshes itself, by how long it takes to make."""
    wanted_ms = round(REFRESH_SHARE * 1000 * took_s, -3)
    return int(min(max(wanted_ms, MIN_REFRESH_MS), MAX_REFRESH_MS))


class Table:
    """One table of a page, as a request asks for it."""

    def __init__(
        self,
        request: HttpRequest,
        name: str,
        columns: Sequence[Column],
        fetch: Fetch,
        *,
        order: str = "",
        filters: Sequence[Filter] = (),
        empty: str = "Nothing here",
        live: bool = False,
        prefix: str = "",
        title: str = "",
        all_url: str = "",
        short: int = 0,
        exports: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        """Read what the request chooses.

        Args:
            name: of the table: its id on the page, and of exported files.
            order: what it is ordered by when nothing is chosen.
            empty: said in place of rows.
            live: it refreshes itself while it is looked at.
            prefix: of its parameters, where a page has two tables.
            title: stands above it, where a page has several.
            all_url: of the page with the whole table; this one is short then.
            short: has so many rows, one page and no choices.
            exports: (label, address) of files in place of those of its own.
        """
        self.title, self.all_url, self._exports = title, all_url, exports
        self.short = short or (SHORT_LIMIT if all_url else 0)
        self.request, self.name, self.columns, self.fetch = request, name, columns, fetch
        self.empty, self.live, self.prefix = empty, live, prefix
        chosen = request.GET
        self.filters = [
            Filter(each.name, each.label, each.choices, each.hint, self._given(each.name))
            for each in filters
        ]
        self.filtered = any(each.value for each in self.filters)
        self.order = self._given("order") or order
        self.limit = self.short or _limit(self._given("limit"))
        self.cursor = self._given("cursor")
        keys = set(chosen.getlist(f"{prefix}column"))
        self.shown = [
            each for each in columns if (each.key in keys if keys else not each.optional)
        ] or [each for each in columns if not each.optional]
        self.rows: list[Row] = []
        self.next = ""
        self.error = ""
        self.status = 200
        self.refresh_ms = MIN_REFRESH_MS

    @property
    def label(self) -> str:
        return self.title or self.name

    @property
    def id(self) -> str:
        return f"table-{self.name}"

    def filter(self, name: str) -> Filter:
        """A filter with the value that is given for it.

        Raises:
            KeyError: there is none of this name; a mistake of the page.
        """
        return {each.name: each for each in self.filters}[name]

    @property
    def column_name(self) -> str:
        """The parameter that chooses columns."""
        return f"{self.prefix}column"

    @property
    def heads(self) -> list[Head]:
        return [self._head(each) for each in self.shown]

    @property
    def choices(self) -> list[tuple[Column, bool]]:
        """All columns, and whether each is shown."""
        return [(each, each in self.shown) for each in self.columns]

    @property
    def has_actions(self) -> bool:
        return any(row.actions for row in self.rows)

    @property
    def most_buttons(self) -> int:
        """Buttons of a row that stand side by side; with more, one button opens them."""
        return 3 if len(self.shown) < MANY_COLUMNS else 1

    @property
    def long(self) -> bool:
        """Whether it matters how many rows a page has."""
        return bool(self.next or self.cursor or len(self.rows) > min(LIMITS))

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Parameters that a form of the table must carry on, beside its own."""
        own = {f"{self.prefix}{each.name}" for each in self.filters} | {f"{self.prefix}cursor"}
        return [
            (name, value)
            for name, values in self.request.GET.lists()
            if name not in own
            for value in values
        ]

    @property
    def next_href(self) -> str:
        return href(self.request, **{f"{self.prefix}cursor": self.next}) if self.next else ""

    @property
    def first_href(self) -> str:
        return href(self.request, **{f"{self.prefix}cursor": ""}) if self.cursor else ""

    @property
    def unfiltered_href(self) -> str:
        return href(self.request, **{f"{self.prefix}{each.name}": "" for each in self.filters})

    @property
    def exports(self) -> Sequence[tuple[str, str]]:
        """(label, address) of each export."""
        if self._exports is not None:
            return self._exports
        name = f"{self.prefix}export"
        return [(form.upper(), href(self.request, **{name: form})) for form in FORMS]

    @property
    def limits(self) -> list[tuple[int, str, bool]]:
        """(rows of a page, address, whether it is so now)."""
        return [
            (each, href(self.request, **{f"{self.prefix}limit": str(each)}), each == self.limit)
            for each in LIMITS
        ]

    def load(self) -> None:
        """Fetch the rows; what was refused becomes `error` and `status`."""
        began = time.perf_counter()
        try:
            self.rows, self.next = self.fetch(self._ask(self.limit, self.cursor))
        except Away as error:
            self.error, self.status = error.detail, 503
        except Invalid as error:
            self.error, self.status = error.detail, 422
        self.refresh_ms = refresh_ms(time.perf_counter() - began)

    def export(self) -> HttpResponseBase | None:
        """The file that was asked for: all rows of all pages, every column; None without a wish."""
        form = self._given("export")
        # A short table fetches one page: all pages of it would be that one, again and again.
        if form not in FORMS or self._exports is not None or self.short:
            return None
        try:
            first = self.fetch(self._ask(EXPORT_STEP, ""))
        except ServiceError as error:
            status = 503 if isinstance(error, Away) else 422
            return HttpResponse(error.detail, content_type="text/plain", status=status)
        write = exports.json_lines if form == "json" else exports.csv_lines
        return lines(write(self.columns, self._all(first)), FORMS[form], f"{self.name}.{form}")

    def _all(self, page: Page[Row]) -> Iterator[Row]:
        seen = 0
        while True:
            yield from page.items[: MAX_EXPORT - seen]
            seen += len(page.items)
            if not page.next or seen >= MAX_EXPORT:
                return
            page = self.fetch(self._ask(EXPORT_STEP, page.next))

    def _ask(self, limit: int, cursor: str) -> Ask:
        return Ask({each.name: each.value for each in self.filters}, self.order, limit, cursor)

    def _given(self, name: str) -> str:
        return given(self.request, f"{self.prefix}{name}")

    def _head(self, column: Column) -> Head:
        if not column.order:
            return Head(column, "", "")
        now = {column.order: "ascending", f"-{column.order}": "descending"}.get(self.order, "")
        first = f"-{column.order}" if column.largest_first else column.order
        other = column.order if first.startswith("-") else f"-{column.order}"
        wanted = other if self.order == first else first
        return Head(column, href(self.request, **{f"{self.prefix}order": wanted}), now)


def respond(
    request: HttpRequest,
    table: Table,
    template: str,
    title: str,
    context: Mapping[str, Any] | None = None,
) -> HttpResponseBase:
    """The page with this table; or the table alone, or its export, as the request wants."""
    return respond_all(request, [table], template, title, {**(context or {}), "table": table})


def respond_all(
    request: HttpRequest,
    tables: Sequence[Table],
    template: str,
    title: str,
    context: Mapping[str, Any] | None = None,
) -> HttpResponseBase:
    """As `respond`, for a page of several tables, each with a prefix of its own but for one."""
    for table in tables:
        exported = table.export()
        if exported is not None:
            return exported
    alone = next((each for each in tables if request.headers.get("HX-Target") == each.id), None)
    for table in [alone] if alone else tables:
        table.load()
    shown = {**(context or {}), "tables": tables}
    if alone:
        shown["table"] = alone
        return TemplateResponse(request, "relay_dashboard/table.html", shown, status=alone.status)
    status = max((each.status for each in tables), default=200)
    return pages.render(request, template, title, shown, status=status)


def href(request: HttpRequest, **changes: str) -> str:
    """The address of this page with other parameters; empty ones go away.

    A cursor belongs to one order and filter: every change but of the columns begins anew.
    """
    query: QueryDict = request.GET.copy()
    for name in [each for each in query if each.endswith(("cursor", "export"))]:
        del query[name]
    for name, value in changes.items():
        query.pop(name, None)
        if value:
            query[name] = value
    return f"{request.path}?{query.urlencode()}" if query else request.path


def _limit(text: str) -> int:
    return {str(each): each for each in LIMITS}.get(text, DEFAULT_LIMIT)
