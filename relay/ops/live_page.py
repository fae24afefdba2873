"""A page of the admin that shows what Redis says now, with one button a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.admin import ModelAdmin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

TEMPLATE: Final = "relay_ops/live_page.html"


@dataclass(frozen=True, slots=True)
class LiveTable:
    """What the page shows.

    Attributes:
        note: one line above the table, such as what is left out or what is wrong.
        search: the text searched for; None where there is nothing to search.
    """

    title: str
    headers: Sequence[str]
    rows: Iterable[Sequence[Any]]
    note: str = ""
    search: str | None = None
    search_hint: str = ""


def render(model_admin: ModelAdmin[Any], request: HttpRequest, table: LiveTable) -> HttpResponse:
    """The page, inside the admin's frame."""
    context = {
        **model_admin.admin_site.each_context(request),
        "title": table.title,
        "opts": model_admin.opts,
        "live": table,
        "table": {"headers": list(table.headers), "rows": [list(row) for row in table.rows]},
    }
    return TemplateResponse(request, TEMPLATE, context)


def button(text: str, name: str, value: str) -> SafeString:
    """A button that posts `name=value`."""
    context = {
        "children": text,
        "submit": True,
        "name": name,
        "value": value,
        "variant": "default",
        "size": "xs",
    }
    return render_to_string("unfold/components/button.html", context)
