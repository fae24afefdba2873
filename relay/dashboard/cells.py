"""The HTML of table cells."""

from __future__ import annotations

from typing import Any, Final

from django.utils.html import format_html
from django.utils.safestring import SafeString

from relay.dashboard import figures, states
from relay.dashboard.figures import Kind
from relay.dashboard.tables import Cell, Column, Row

LONG_CHARS: Final = 16
"""Length from which an id may be cut to fit, and has a button that copies it."""
COPY: Final = (
    '<button class="c-copy material-symbols-outlined" type="button" data-copy="{}" title="Copy"'
    ' aria-label="Copy {}"></button>'
)


def cell(column: Column, row: Row) -> SafeString:
    """Return the HTML of the cell of a row in a column."""
    value = row.values.get(column.key)
    shown = _shown(column, value)
    link = row.links.get(column.key)
    if link:
        shown = format_html('<a class="c-link" href="{}">{}</a>', link, shown)
    if column.kind is Cell.CODE and len(str(value or "")) >= LONG_CHARS:
        shown = format_html("{}{}", shown, format_html(COPY, value, value))
    return shown


def _shown(column: Column, value: Any) -> SafeString:
    if isinstance(column.kind, Kind):
        return figures.figure(value, column.kind)
    if column.kind is Cell.MOMENT:
        return figures.moment(value)
    if value is None or value == "":
        return format_html('<span class="c-none">{}</span>', figures.NONE)
    if column.kind is Cell.STATE:
        return states.badge(value)
    if column.kind is Cell.LINE:
        return format_html('<span class="c-number">{}</span>', value)
    if column.kind is Cell.CODE:
        return format_html('<code class="c-cut" title="{}">{}</code>', value, value)
    return format_html("{}", value)
