"""Federation over time: how partner relays met the objective, and their worst hours."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.errors import Away
from relay.analytics import listing, summaries
from relay.analytics.models import FederationRank, FederationSlo
from relay.analytics.summaries import US_PER_S, Budget
from relay.dashboard import analytics, spans
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import (
    Ask,
    Cell,
    Column,
    Fetch,
    Filter,
    Row,
    Table,
    href,
    respond_all,
)
from relay.federation import listing as relays
from relay.ops.paging import Page, one_of, page_of

TITLE: Final = "Federation over time"

BUDGETS: Final = (
    Column("remote", "Relay", order="remote"),
    Column("state", "Objective", Cell.STATE),
    Column("left", "Budget left", Kind.SHARE, order="left",
           hint="share of the permitted failures that is left; below 0: overspent"),
    Column("attempts", "Attempts", Kind.NUMBER, order="attempts"),
    Column("failed", "Failed", Kind.NUMBER, order="failed"),
    Column("allowed", "May fail", Kind.NUMBER, hint="failures that the objective permits"),
    Column("share", "Succeeded", Kind.SHARE, order="share"),
    Column("bad_hours", "Bad hours", Kind.NUMBER, order="bad_hours",
           hint="hours that missed the objective"),
    Column("hours", "Hours", Kind.NUMBER, optional=True, hint="hours with delivery attempts"),
    Column("worst", "Worst hour", Kind.SHARE,
           hint="share of the attempts in this hour that succeeded"),
    Column("worst_p95_s", "Slowest hour", Kind.DURATION,
           hint="95th percentile of the round-trip time in the slowest hour"),
    Column("place", "Place", Kind.NUMBER,
           hint="rank by failures on the last of these days; recent ones count more; 1 is best"),
)  # fmt: skip
HOURS: Final = (
    Column("hour", "Hour", Cell.LINE, order="hour", hint="UTC"),
    Column("remote", "Relay"),
    Column("share", "Succeeded", Kind.SHARE, order="share"),
    Column("attempts", "Attempts", Kind.NUMBER, order="attempts"),
    Column("failed", "Failed", Kind.NUMBER),
    Column("p95_s", "Round trip", Kind.DURATION, hint="95th percentile"),
)
ORDERS: Final = {"hour": "hour", "share": "permille", "attempts": "attempts"}
AT_RISK: Final = 0.25
"""Fraction of the error budget below which it counts as nearly spent."""
UNNAMED: Final = "unknown"


@page(analytics.VIEW)
def federation(request: HttpRequest) -> HttpResponseBase:
    """Show the error budgets of some days, and the hours."""
    days = spans.days(request, "federation_slo")
    if days is None:
        return analytics.nothing(request, TITLE, "federation")
    objective = settings.RMB.analytics.objective_percent / 100
    rows = listing.rows("federation_slo", days.first, days.last)
    budgets = summaries.budgets(rows, objective)
    places = dict(
        FederationRank.objects.filter(period=_last_ranked(days)).values_list("remote", "place")
    )
    known = _known()
    tables = [
        Table(
            request, "budgets", BUDGETS, _budgets(request, budgets, places), order="left",
            title="Error budgets", prefix="b-", empty="No delivery attempts on these days.",
        ),
        Table(
            request, "hours", HOURS, _hours(days, known), order="share",
            title="Hours, the worst first", filters=[Filter("remote", "Relay", hint="a domain")],
            empty="No delivery attempts on these days.",
        ),
    ]  # fmt: skip
    spent = [each for each in budgets if each.left < 0]
    context = {"days": days, "objective": objective, "budgets": budgets, "spent": spent}
    return respond_all(
        request, tables, "relay_dashboard/analytics_federation.html", TITLE,
        analytics.frame(request, context),
    )  # fmt: skip


def state_of(budget: Budget) -> State:
    """Return whether a relay met the objective."""
    if budget.left < 0:
        return State("missed", Tone.BAD, "more attempts failed than the objective allows")
    if budget.left < AT_RISK:
        return State("nearly spent", Tone.WARNING, "less than a quarter of the budget is left")
    return State("kept", Tone.GOOD)


def _last_ranked(days: spans.Days) -> str:
    ranked = listing.rows("federation_rank", days.first, days.last)
    return ranked.order_by("-period").values_list("period", flat=True).first() or ""


def _known() -> frozenset[str]:
    """Return the relays that have a page."""
    try:
        return frozenset(each.domain for each in relays.look())
    except Away:
        return frozenset()


def _budgets(request: HttpRequest, budgets: list[Budget], places: dict[str, int]) -> Fetch:
    def fetch(ask: Ask) -> Page[Row]:
        name, _ = one_of(ask.order, ("remote", "left", "attempts", "failed", "share", "bad_hours"))
        found = page_of(
            budgets,
            lambda budget: (getattr(budget, name), budget.remote),
            ask.order,
            ask.limit,
            ask.cursor,
        )
        rows = [_budget(request, each, places.get(each.remote)) for each in found.items]
        return Page(rows, found.next)

    return fetch


def _budget(request: HttpRequest, budget: Budget, place: int | None) -> Row:
    values = {
        "remote": budget.remote or UNNAMED,
        "state": state_of(budget),
        "left": budget.left,
        "attempts": budget.attempts,
        "failed": budget.failed,
        "allowed": budget.allowed,
        "share": budget.share,
        "bad_hours": budget.bad_hours,
        "hours": budget.hours,
        "worst": budget.worst_permille / 1000,
        "worst_p95_s": budget.worst_p95_s,
        "place": place,
    }
    hours = href(request, remote=budget.remote) + "#table-hours"
    return Row(values, {"remote": hours, "bad_hours": hours} if budget.remote else {})


def _hours(days: spans.Days, known: frozenset[str]) -> Fetch:
    def fetch(ask: Ask) -> Page[Row]:
        rows: Any = listing.rows("federation_slo", days.first, days.last)
        if ask.filters["remote"]:
            rows = rows.filter(remote=ask.filters["remote"])
        found = ask.page(rows, ORDERS)
        return Page([_hour(each, known) for each in found.items], found.next)

    return fetch


def _hour(found: FederationSlo, known: frozenset[str]) -> Row:
    values = {
        "hour": f"{found.hour:%Y-%m-%d %H:%M}",
        "remote": found.remote or UNNAMED,
        "share": found.ok / found.attempts if found.attempts else None,
        "attempts": found.attempts,
        "failed": found.attempts - found.ok,
        "p95_s": None if found.p95_us is None else found.p95_us / US_PER_S,
    }
    links = {"remote": reverse("console:relay", args=[found.remote])}
    return Row(values, links if found.remote in known else {})
