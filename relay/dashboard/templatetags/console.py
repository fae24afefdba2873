"""Filters and tags of the console's templates."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from relay.dashboard import cells, figures, states, tables, tiles
from relay.server.cli import package_version

register = template.Library()
register.simple_tag(functools.cache(package_version), name="version")


@register.filter
def figure(value: float | None, kind: str) -> SafeString:
    """`{{ size_bytes|figure:"bytes" }}`; the kinds are those of `relay.dashboard.figures`."""
    return figures.figure(value, figures.Kind(kind))


@register.filter
def moment(value: datetime | float | None) -> SafeString:
    """`{{ opened_at|moment }}`: how long ago, with the exact time on hover."""
    return figures.moment(value)


@register.filter
def state(value: states.State) -> SafeString:
    """`{{ worker_state|state }}`: a word with an icon and a colour."""
    return states.badge(value)


@register.filter
def code_spans(text: str) -> SafeString:
    """Return a trusted text with its parts between backquotes as code."""
    parts = text.split("`")
    written = (
        format_html("<code>{}</code>" if number % 2 else "{}", part)
        for number, part in enumerate(parts)
    )
    return format_html_join("", "{}", ((part,) for part in written))


@register.filter
def breakable(domain: str) -> SafeString:
    """Return a domain that may wrap after each of its dots."""
    return format_html_join(mark_safe(".<wbr>"), "{}", ((part,) for part in domain.split(".")))


@register.simple_tag
def cell(column: tables.Column, row: tables.Row) -> SafeString:
    """Return the HTML of one cell of a table."""
    return cells.cell(column, row)


@register.simple_tag(takes_context=True)
def href(context: Any, **changes: Any) -> str:
    """Return this page's address with parameters changed; empty ones and cursors are removed."""
    return tables.href(context["request"], **changes)


@register.simple_tag
def live(number: tiles.Number) -> SafeString:
    """Return a number that `numbers.js` updates each second."""
    return figures.live(number.value, number.kind, number.series)


@register.simple_tag
def sign(value: states.State) -> str:
    """Return the name of a state's icon."""
    return states.SIGNS[value.tone]
