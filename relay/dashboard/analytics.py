"""Shared parts of analytics pages: tabs, links, and the page shown before there are results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from proto.identity.bounds import MAX_TWIN
from relay.analytics.spark.protocols import RMB, SBD
from relay.dashboard.pages import may, render
from relay.dashboard.tables import Ask, Filter
from relay.dashboard.tabs import Entry, tabs

VIEW: Final = "analytics.view"

TABS: Final = tuple(
    Entry(title, name, VIEW)
    for title, name in (
        ("Traffic", "analytics"),
        ("Now", "analytics_now"),
        ("Federation", "analytics_federation"),
        ("Sessions", "analytics_sessions"),
        ("Anomalies", "analytics_anomalies"),
        ("Busiest", "analytics_busiest"),
        ("Usage", "analytics_usage"),
        ("Delivery", "analytics_delivery"),
        ("Graph", "analytics_graph"),
        ("Lattice", "analytics_lattice"),
        ("Runs", "analytics_runs"),
    )
)

RELAY: Final = Filter("relay", "Relay", hint="a domain")
TWIN: Final = Filter("twin", "Twin", hint="a twin id")
PROTOCOLS: Final = {RMB: "RMB", SBD: "SBD"}
PROTOCOL: Final = Filter("protocol", "Protocol", tuple(PROTOCOLS.items()))


class Nothing(NamedTuple):
    """Contents of a page without results: explanation, commands to run, and the documentation."""

    title: str
    lines: list[str]
    commands: list[str]
    document: str = "docs/howto/analytics.md"


def frame(
    request: HttpRequest, context: Mapping[str, Any] | None = None, current: str = ""
) -> dict[str, Any]:
    """Return the context of a page of analytics; `current` names the tab of a page without one."""
    return {**(context or {}), "tabs": tabs(request, TABS, current)}


def of_twin(rows: QuerySet[Any], ask: Ask) -> QuerySet[Any]:
    """Return the rows of the twin that the filter TWIN selects; all rows if it is empty."""
    twin = ask.number("twin")
    return rows if twin is None else rows.filter(twin=twin)


def of_sender(rows: QuerySet[Any], ask: Ask) -> QuerySet[Any]:
    """Return the rows that the filters TWIN and PROTOCOL select."""
    protocol = ask.filters["protocol"]
    return of_twin(rows.filter(protocol=protocol) if protocol else rows, ask)


def twin_link(request: HttpRequest, key: str, twin: int) -> dict[str, str]:
    """Return the link of a cell with a twin; empty without a twin, or without permission."""
    if not may(request, "twin.view") or not 0 < twin <= MAX_TWIN:
        return {}
    return {key: reverse("console:twin", args=[twin])}


def nothing(request: HttpRequest, title: str, job: str) -> HttpResponseBase:
    """Return the page shown instead of one whose table is not computed for any day."""
    lines = ["Analytics computes results from months of recorded events."]
    commands = [f"python manage.py rmb_analytics run {job} --from 7d"]
    if not settings.RMB.analytics.record:
        lines.append(
            "The recorder is off. Set analytics.record, restart the relay, and let it "
            "record for a while."
        )
        commands.insert(0, "RMB_ANALYTICS__RECORD=1")
    lines.append("Results appear here after this job has computed the recorded days.")
    found = Nothing("No results yet", lines, commands)
    context = frame(request, {"nothing": found})
    return render(request, "relay_dashboard/analytics_nothing.html", title, context)
