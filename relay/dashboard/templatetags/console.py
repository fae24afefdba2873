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
    """`{{ worker_state|state }}`: a word with a sign and a colour."""
    return states.badge(value)


@register.filter
def code_spans(text: str) -> SafeString:
    """A text of ours with what stands between backquotes as code."""
    parts = text.split("`")
    written = (
        format_html("<code>{}</code>" if number % 2 else "{}", part)
        for number, part in enumerate(parts)
    )
    return format_html_join("", "{}", ((part,) for part in written))


@register.filter
def breakable(domain: str) -> SafeString:
    """A domain that may go on in the next line after each of its points."""
    return format_html_join(mark_safe(".<wbr>"), "{}", ((part,) for part in domain.split(".")))


@register.simple_tag
def cell(column: tables.Column, row: tables.Row) -> SafeString:
    """What a table shows of a row in a column."""
    return cells.cell(column, row)


@register.simple_tag(takes_context=True)
def href(context: Any, **changes: Any) -> str:
    """This page's address with parameters changed; empty ones go away, and so does the cursor."""
    return tables.href(context["request"], **changes)


@register.simple_tag
def live(number: tiles.Number) -> SafeString:
    """A number that `numbers.js` writes anew each second."""
    return figures.live(number.value, number.kind, number.series)


@register.simple_tag
def sign(value: states.State) -> str:
    """The sign of a state alone: the name of an icon."""
    return states.SIGNS[value.tone]
