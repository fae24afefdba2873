"""The REST API as pages: a list of all operations, and each one with its fields and an example.

The pages are for every account; the document itself, `/api/v1/openapi.json`, is public.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.errors import NotFound
from relay.access.matrix import Role
from relay.dashboard.pages import page, render
from relay.dashboard.tables import LIMITS, Action, Ask, Cell, Column, Filter, Row, Table, respond
from relay.ops.paging import Page, one_of, page_of
from relay.rest import described
from relay.rest.api import api
from relay.rest.described import Operation

COLUMNS: Final = (
    Column("method", "Method", Cell.LINE, order="method"),
    Column("path", "Path", order="path"),
    Column("summary", "Summary"),
    Column("tag", "Part", order="tag"),
    Column("role", "Role", order="role", hint="lowest role that has the permission"),
    Column("permission", "Permission", optional=True),
)
ORDERS: Final = tuple(each.order for each in COLUMNS if each.order)
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(api.document)
    return document


@page()
def operations(request: HttpRequest) -> HttpResponseBase:
    """List all operations on one page."""
    every = described.operations(_document()).values()

    def fetch(ask: Ask) -> Page[Row]:
        rows = [_row(each) for each in every if _fits(each, ask)]
        name, _ = one_of(ask.order, ORDERS)
        return page_of(
            rows,
            lambda row: (row.values[name], f"{row.values['path']} {row.values['method']}"),
            ask.order,
            ask.limit,
            ask.cursor,
        )

    filters = (
        Filter("find", "Search", hint="path, name, text"),
        Filter("tag", "Part", [(each, each) for each in sorted({each.tag for each in every})]),
        Filter("method", "Method", [(each, each) for each in METHODS]),
        Filter("role", "Role", [(each, each) for each in Role]),
    )
    table = Table(request, "operations", COLUMNS, fetch, order="path", filters=filters)
    if not request.GET.get("limit"):
        table.limit = LIMITS[-1]
    document = Action("OpenAPI document", reverse("rest:openapi"), asks=False, download=True)
    context = {"actions": [document], "about": api.description.split("\n\n")}
    return respond(request, table, "relay_dashboard/api_docs.html", "REST API", context)


@page()
def operation(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show one operation."""
    document = _document()
    found = described.operations(document).get(name)
    if found is None:
        raise NotFound(f"the REST API has no operation {name}")
    told = found.told
    context = {
        "operation": found,
        "doc": "" if told["description"] == f"{found.summary}." else told["description"],
        "parameters": described.parameters(told),
        "body": described.content(told.get("requestBody", {})),
        "answers": described.answers(document, told),
        "schemas": list(described.schemas(document, told)),
        "example": described.example(document, found, request.build_absolute_uri("/")[:-1]),
    }
    return render(request, "relay_dashboard/api_operation.html", found.summary, context)


def _fits(each: Operation, ask: Ask) -> bool:
    text = f"{each.name} {each.path} {each.summary} {each.told['description']}".lower()
    return all(word in text for word in ask.filters["find"].lower().split()) and all(
        ask.filters[name] in ("", getattr(each, name)) for name in ("tag", "method", "role")
    )


def _row(each: Operation) -> Row:
    values = {column.key: getattr(each, column.key) for column in COLUMNS}
    return Row(values, {"path": reverse("api_docs_operation", args=[each.name])})
