"""Tables of the console, which can be ordered, filtered, paged and exported.

A page declares columns and filters, and a function that fetches a page of rows:

    def fetch(ask: Ask) -> Page[Row]: ...
    table = Table(request, "queues", COLUMNS, fetch, order="-messages", filters=FILTERS)
    return respond(request, table, "relay_dashboard/queues.html", "Queues")

The page's address contains all choices of the operator, so that a link shows others the same. A
live table requests itself again (`HX-Target` names it) and gets only the table.
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
"""Maximum rows of one export; use the REST interface or the commands for more."""
SHORT_LIMIT: Final = 5
"""Rows of a short table, which is shown beside others and links to the complete one."""
MANY_COLUMNS: Final = 9
"""Number of columns from which a row with several buttons hides them behind one."""
MIN_REFRESH_MS: Final = 2000
MAX_REFRESH_MS: Final = 60_000
REFRESH_SHARE: Final = 50
"""Minimum ratio of a table's refresh period to the time it takes to make: at most a fiftieth of the
time is spent on it, so that ten consoles that show the largest lists do not slow the relay."""
MAX_DIGITS: Final = 18
"""Maximum digits of a number in a filter: the database does not accept larger numbers."""
FORMS: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


class Cell(StrEnum):
    """Kinds of columns other than figures."""

    TEXT = "text"
    CODE = "code"
    """An id or a key: cut if it is too long, complete on hover."""
    LINE = "line"
    """A short text that stays on one line, such as a day."""
    STATE = "state"
    MOMENT = "moment"
    """A time: a datetime, or unix seconds."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        key: key of its value in `Row.values`, and its name in exports and addresses.
        order: value of `Ask.order` that orders by it; empty if it cannot be ordered by.
        optional: whether it is shown only when selected.
        hint: explanation shown on hover.
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
        """Whether the first order is descending: it is for numbers and times, and not for words."""
        return self.is_figure or self.kind is Cell.MOMENT


@dataclass(frozen=True, slots=True)
class Action:
    """A button of a row or of a page.

    Attributes:
        asks: whether it opens a question (see `relay.dashboard.acts`) instead of another page.
        download: whether it downloads a file.
    """

    label: str
    url: str
    danger: bool = False
    asks: bool = True
    download: bool = False


class Tab(NamedTuple):
    """One of several lists that a page can show."""

    label: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A row.

    Attributes:
        values: plain values by key of the column, as exports contain them.
        links: addresses that cells link to, by key of the column.
    """

    values: Mapping[str, Any]
    links: Mapping[str, str] = field(default_factory=dict)
    actions: Sequence[Action] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter.

    Attributes:
        choices: (value, label) pairs; without them, the filter is a text field.
    """

    name: str
    label: str
    choices: Sequence[tuple[str, str]] = ()
    hint: str = ""
    value: str = ""


class Ask(NamedTuple):
    """A request for rows.

    Attributes:
        filters: values of the filters by name; empty if not set.
        order: `Column.order` of a column, possibly with a leading minus.
    """

    filters: Mapping[str, str]
    order: str
    limit: int
    cursor: str

    def number(self, name: str) -> int | None:
        """Return the value of a filter as a number; None if it is empty.

        Raises:
            Invalid: the value is not a number.
        """
        return whole_number(name, self.filters[name])

    def page(
        self, rows: QuerySet[Record], orders: Mapping[str, str], nullable: Collection[str] = ()
    ) -> Page[Record]:
        """Return the requested page of rows of the database (see `relay.ops.keyset.page`).

        Raises:
            Invalid, Away
        """
        return keyset.page(
            rows, orders, order=self.order, limit=self.limit, cursor=self.cursor, nullable=nullable
        )

    def choice(self, name: str, values: Mapping[str, Any]) -> Any:
        """Map the value of a filter; None if it is not set."""
        return values.get(self.filters[name])


Fetch = Callable[[Ask], Page[Row]]


class Head(NamedTuple):
    """The head of a column: the address it links to, and how the table is ordered by it now."""

    column: Column
    href: str
    sorted: str


def whole_number(name: str, text: str) -> int | None:
    """Return the value of a parameter as a number; None if it is empty.

    Raises:
        Invalid: the value is not a whole number.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise Invalid(fields={name: "must be a whole number"})
    return int(text)


def given(request: HttpRequest, name: str) -> str:
    """Return the value of a parameter of the address; empty if it is missing.

    Raises:
        Invalid: the value contains a NUL character, which PostgreSQL cannot store.
    """
    text = request.GET.get(name, "").strip()
    if "\0" in text:
        raise Invalid(fields={name: "holds a NUL character"})
    return text


def refresh_ms(took_s: float) -> int:
    """Return the refresh period of a part of a page, from the time it takes to make."""
    wanted_ms = round(REFRESH_SHARE * 1000 * took_s, -3)
    return int(min(max(wanted_ms, MIN_REFRESH_MS), MAX_REFRESH_MS))


class Table:
    """One table of a page, with the choices of a request."""

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
        """Read the choices from the request.

        Args:
            name: name of the table: its id on the page, and the name of exported files.
            order: order if the request names none.
            empty: text shown instead of rows.
            live: whether it refreshes itself while it is visible.
            prefix: prefix of its parameters, for pages with several tables.
            title: heading, for pages with several tables.
            all_url: address of the page with the complete table; makes this table a short one.
            short: number of rows of a short table, which has one page and no choices.
            exports: (label, address) of files that replace its own exports.
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
        """Return a filter with its value.

        Raises:
            KeyError: the table has no such filter; a mistake of the page.
        """
        return {each.name: each for each in self.filters}[name]

    @property
    def column_name(self) -> str:
        """Name of the parameter that selects columns."""
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
        """Maximum number of buttons side by side in a row; with more, one button opens them."""
        return 3 if len(self.shown) < MANY_COLUMNS else 1

    @property
    def long(self) -> bool:
        """Whether the table is long enough to offer a choice of rows per page."""
        return bool(self.next or self.cursor or len(self.rows) > min(LIMITS))

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Parameters, besides its own, that a form of the table must preserve."""
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
        """(label, address) pairs, one for each export."""
        if self._exports is not None:
            return self._exports
        name = f"{self.prefix}export"
        return [(form.upper(), href(self.request, **{name: form})) for form in FORMS]

    @property
    def limits(self) -> list[tuple[int, str, bool]]:
        """(rows per page, address, whether selected)."""
        return [
            (each, href(self.request, **{f"{self.prefix}limit": str(each)}), each == self.limit)
            for each in LIMITS
        ]

    def load(self) -> None:
        """Fetch the rows; errors are stored in `error` and `status`."""
        began = time.perf_counter()
        try:
            self.rows, self.next = self.fetch(self._ask(self.limit, self.cursor))
        except Away as error:
            self.error, self.status = error.detail, 503
        except Invalid as error:
            self.error, self.status = error.detail, 422
        self.refresh_ms = refresh_ms(time.perf_counter() - began)

    def export(self) -> HttpResponseBase | None:
        """Return the requested file with all rows and columns; None if no file is requested."""
        form = self._given("export")
        # A short table always fetches the same page, so an export would repeat it.
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
    """Return the page with this table, or, as requested, only the table or an export of it."""
    return respond_all(request, [table], template, title, {**(context or {}), "table": table})


def respond_all(
    request: HttpRequest,
    tables: Sequence[Table],
    template: str,
    title: str,
    context: Mapping[str, Any] | None = None,
) -> HttpResponseBase:
    """Respond as `respond` for a page of several tables, of which all but one have a prefix."""
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
    """Return the address of this page with other parameters; empty ones are removed.

    A cursor is only valid for one order and filter, so every change returns to the first page.
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
