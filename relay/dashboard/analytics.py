"""What the pages of analytics share: tabs, links, what is said before there are results."""

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
    """What a page says for which nothing is computed yet, what to do, and where that is told."""

    title: str
    lines: list[str]
    commands: list[str]
    document: str = "docs/howto/analytics.md"


def frame(
    request: HttpRequest, context: Mapping[str, Any] | None = None, current: str = ""
) -> dict[str, Any]:
    """The context of a page of analytics; `current` is its tab, where it is not one itself."""
    return {**(context or {}), "tabs": tabs(request, TABS, current)}


def of_twin(rows: QuerySet[Any], ask: Ask) -> QuerySet[Any]:
    """Those of the twin that a table with the filter TWIN is asked for; all, if of none."""
    twin = ask.number("twin")
    return rows if twin is None else rows.filter(twin=twin)


def of_sender(rows: QuerySet[Any], ask: Ask) -> QuerySet[Any]:
    """The same for a table that has the filter PROTOCOL as well."""
    protocol = ask.filters["protocol"]
    return of_twin(rows.filter(protocol=protocol) if protocol else rows, ask)


def twin_link(request: HttpRequest, key: str, twin: int) -> dict[str, str]:
    """Where a cell with a twin leads; nowhere for those who may not see twins, and for nobody."""
    if not may(request, "twin.view") or not 0 < twin <= MAX_TWIN:
        return {}
    return {key: reverse("console:twin", args=[twin])}


def nothing(request: HttpRequest, title: str, job: str) -> HttpResponseBase:
    """The page in place of one whose table has not been computed for any day."""
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
