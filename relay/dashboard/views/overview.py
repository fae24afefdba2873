"""The first page: what needs attention, then how the relay performs.

Three parts of it request themselves again (`HX-Target` names them); the figures between them are
updated through the page's websocket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse

from relay.access.errors import Away
from relay.dashboard import attention, first_steps, health_strip, tiles, top_twins
from relay.dashboard.figures import OVER
from relay.dashboard.pages import page, render
from relay.dashboard.tables import refresh_ms
from relay.dashboard.views import charts
from relay.sessions.rates import WINDOW_S

AWAY_MS: Final = 10_000
"""Milliseconds until a part that could not be shown requests itself again."""
SPANS: Final = (("1h", "one hour"), ("24h", "a day"), ("7d", "a week"), ("1y", "a year"))


@page("worker.view")
def overview(request: HttpRequest) -> HttpResponseBase:
    """Show what needs attention, then live figures; or only one part, if the request names it."""
    part = request.headers.get("HX-Target", "")
    if part in _PARTS:
        template = f"relay_dashboard/overview_{part}.html"
        return TemplateResponse(request, template, dict(_PARTS[part](request)))
    context: dict[str, Any] = {
        "charts": charts.shown(),
        "span": charts.span_of(request),
        "spans": SPANS,
        "reminder": first_steps.reminder(request),
    }
    for read in _PARTS.values():
        context |= read(request)
    return render(request, "relay_dashboard/overview.html", "Overview", context)


def _attention(request: HttpRequest) -> Mapping[str, Any]:
    return {"attention": attention.look(request)}


def _tiles(request: HttpRequest) -> Mapping[str, Any]:
    follows_chain = settings.RMB.twins.source == "tfchain"
    try:
        return {"tiles": tiles.read(follows_chain)}
    except Away as error:
        return {"tiles_away": error.detail}


def _around(request: HttpRequest) -> Mapping[str, Any]:
    began = time.perf_counter()
    try:
        around = {"strip": health_strip.look(), "top": top_twins.look()}
    except Away as error:
        return {"around_away": error.detail, "around_ms": AWAY_MS}
    around_ms = refresh_ms(time.perf_counter() - began)
    return {**around, "over": OVER, "window_s": WINDOW_S, "around_ms": around_ms}


_PARTS: Final[Mapping[str, Callable[[HttpRequest], Mapping[str, Any]]]] = {
    "attention": _attention,
    "tiles": _tiles,
    "around": _around,
}
