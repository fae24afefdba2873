"""The settings in force: their values, sources and meanings."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.dashboard.pages import page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import LIMITS, Ask, Cell, Column, Filter, Row, Table, respond
from relay.ops import settings_api
from relay.ops.paging import Page, one_of, page_of
from relay.ops.settings_api import SettingOut

COLUMNS: Final = (
    Column("key", "Setting", Cell.CODE, order="key"),
    Column("value", "Value", hint="value since the operator site started"),
    Column("origin", "From", Cell.STATE, order="origin", hint="source of the value"),
    Column("doc", "Meaning"),
    Column("default", "Default", optional=True),
    Column("bounds", "Bounds", optional=True),
    Column(
        "variable",
        "Variable",
        Cell.CODE,
        optional=True,
        hint="environment variable for the setting",
    ),
)

ORDERS: Final = tuple(each.order for each in COLUMNS if each.order)


@page("setting.view")
def settings_page(request: HttpRequest) -> HttpResponseBase:
    """List all settings on one page."""
    every = list(settings_api.every())
    sections = dict.fromkeys(each.section for each in every)

    def fetch(ask: Ask) -> Page[Row]:
        rows = [_row(each) for each in every if _fits(each, ask)]
        name, _ = one_of(ask.order, ORDERS)
        return page_of(
            rows,
            lambda row: (str(row.values[name]), row.values["key"]),
            ask.order,
            ask.limit,
            ask.cursor,
        )

    filters = (
        Filter("find", "Search", hint="name, value, text"),
        Filter("section", "Section", [(each, each) for each in sections]),
        Filter("changed", "Value", (("yes", "changed"), ("no", "default"))),
    )
    table = Table(request, "settings", COLUMNS, fetch, order="key", filters=filters)
    if not request.GET.get("limit"):
        table.limit = LIMITS[-1]
    return respond(request, table, "relay_dashboard/settings.html", "Settings")


def _fits(setting: SettingOut, ask: Ask) -> bool:
    words = ask.filters["find"].lower().split()
    text = f"{setting.key} {setting.variable} {_told(setting.value)} {setting.doc}".lower()
    changed = {"yes": True, "no": False}.get(ask.filters["changed"])
    return (
        all(word in text for word in words)
        and ask.filters["section"] in ("", setting.section)
        and changed in (None, setting.origin != "default")
    )


def _row(setting: SettingOut) -> Row:
    default = setting.origin == "default"
    return Row(
        {
            "key": setting.key,
            "value": _told(setting.value),
            "origin": State(setting.origin, Tone.IDLE if default else Tone.INFO),
            "doc": setting.doc,
            "default": _told(setting.default),
            "bounds": _bounds(setting),
            "variable": setting.variable,
        }
    )


def _told(value: Any) -> str:
    """Return a value as an operator would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value)
    return str(value)


def _bounds(setting: SettingOut) -> str:
    if setting.choices:
        return ", ".join(setting.choices)
    least, most = setting.minimum, setting.maximum
    if least is not None and most is not None:
        return f"{least:,g} to {most:,g}"
    if least is not None:
        return f"from {least:,g}"
    return "" if most is None else f"up to {most:,g}"
