"""A page of the admin that shows what Redis says now, with one button a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.admin import ModelAdmin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

TEMPLATE: Final = "relay_ops/live_page.html"


@dataclass(frozen=True, slots=True)
class LiveTable:
    """What the page shows.

    Attributes:
        empty: said in place of a table without rows.
        note: one line above the table, such as what is left out or what is wrong.
        search: the text searched for; None where there is nothing to search.
    """

    title: str
    headers: Sequence[str]
    rows: Iterable[Sequence[Any]]
    empty: str
    note: str = ""
    search: str | None = None
    search_hint: str = ""


def render(model_admin: ModelAdmin[Any], request: HttpRequest, table: LiveTable) -> HttpResponse:
    """The page, inside the admin's frame."""
    context = {
        **model_admin.admin_site.each_context(request),
        # Without the model's options the frame shows this title, not the model's name.
        "title": table.title,
        "live": table,
        "table": {"headers": list(table.headers), "rows": [list(row) for row in table.rows]},
    }
    return TemplateResponse(request, TEMPLATE, context)


def cut(text: str) -> SafeString:
    """A value of any length: what does not fit is in its title."""
    return format_html('<span class="relay-cut" title="{}">{}</span>', text, text)


def duration(seconds: float) -> str:
    """A length of time in the two units that matter: `3 d 4 h`, `12 min`, `8 s`."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{whole} s"


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
