"""The page of one twin: all information about it, and all actions on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.errors import Away
from relay.dashboard import bars
from relay.dashboard.addresses import check_twin
from relay.dashboard.pages import may, page
from relay.dashboard.tables import Action, Ask, Row, Table, respond_all
from relay.dashboard.views import queues, twins
from relay.limits import defaults, hits, waiting
from relay.limits import listing as limits
from relay.limits.models import TwinLimit
from relay.ops.paging import Page
from relay.queues import services as queue_services
from relay.resources import console
from relay.sessions import listing
from relay.sessions import resources as sessions
from relay.trace import services as traces
from relay.twins import services
from relay.twins.models import Twin
from relay.twins.source import split_relays

Value = TypeVar("Value")

LIVE: Final = (
    "sid",
    "address",
    "carrier",
    "worker",
    "opened_at",
    "rate_in",
    "rate_out",
    "backlog",
    "drops",
)
ENDED: Final = ("sid", "address", "closed_at", "lasted_s", "close_reason", "drops")


@page("twin.view")
def twin(request: HttpRequest, twin: int) -> HttpResponseBase:
    """Show a twin, registered or not: decisions about it apply in either case."""
    check_twin(twin)
    row = Twin.objects.filter(pk=twin).first()
    limit = limits.of([twin]).get(twin)
    offered: tuple[tuple[str, Callable[[], Table]], ...] = (
        ("session.view", lambda: _live(request, twin)),
        ("queue.view", lambda: _waiting(request, twin)),
        ("session.view", lambda: _ended(request, twin)),
    )
    tables = [make() for action, make in offered if may(request, action)]
    held = listing.open_of([twin]).get(twin, 0)
    context = {
        "twin": twin,
        "row": row,
        "relays": split_relays(row.relays) if row else (),
        "pk": twins.key_text(row) if row else "",
        "state": twins.state_of(limit, held),
        "limit": limit,
        "own_limit": twins.limit_of(limit),
        "default": defaults.get(),
        "decider": limits.deciders([twin]).get(twin) if may(request, "audit.view") else None,
        "waiting": _or_none(lambda: waiting.of_twin(twin)),
        "refused": _or_none(lambda: _refused(twin)),
        "traces": traces.running_of(twin) if may(request, "trace.view") else [],
        "actions": _actions(request, twin, row, limit, held),
    }
    return respond_all(request, tables, "relay_dashboard/twin.html", f"Twin {twin}", context)


def _live(request: HttpRequest, twin: int) -> Table:
    return console.part(
        request, sessions.LIVE, LIVE, {"twin": twin}, name="twin-sessions", title="Connected now",
        live=True, prefix="s-", all_url=_list("sessions", twin), empty="The twin is not connected.",
    )  # fmt: skip


def _waiting(request: HttpRequest, twin: int) -> Table:
    purgeable = may(request, "queue.purge")

    def fetch(ask: Ask) -> Page[Row]:
        found = queue_services.list_queues(twin=twin, order="-messages", limit=ask.limit)
        return Page(queues.rows(found.items, purgeable), found.next)

    return Table(
        request, "twin-queues", queues.COLUMNS, fetch, title="Waiting messages", live=True,
        prefix="q-", all_url=_list("queues", twin), empty="No messages wait for the twin.",
    )  # fmt: skip


def _ended(request: HttpRequest, twin: int) -> Table:
    return console.part(
        request, sessions.HISTORY, ENDED, {"twin": twin, "open": False}, order="-ended",
        name="twin-ended", title="Ended sessions", prefix="e-",
        all_url=_list("session_history", twin), empty="No session has ended yet.",
    )  # fmt: skip


def _refused(twin: int) -> dict[str, Any]:
    """Return the messages of the last hour that exceeded the twin's limit."""
    minutes = list(reversed(hits.of_twin(twin)))
    lines = [
        (f"{datetime.fromtimestamp(at, UTC):%H:%M} UTC: {count:,} messages", count)
        for at, count in minutes
    ]
    return {"total": sum(count for _, count in minutes), "strip": bars.strip(lines)}


def _actions(
    request: HttpRequest, twin: int, row: Twin | None, limit: TwinLimit | None, held: int
) -> list[Action]:
    banned = limit is not None and limit.ban_holds()
    query = urlencode({"twin": twin})
    trace = urlencode({"kind": "twin", "subject": twin})
    edit = Action("Edit", reverse("console:twin_change", args=[twin]))
    remove = Action("Remove", reverse("console:twin_remove", args=[twin]), danger=True)
    ban = Action("Ban", f"{reverse('console:limit_ban')}?{query}", danger=True)
    if banned:
        ban = Action("Lift the ban", reverse("console:limit_lift", args=[twin]))
    offered = (
        ("twin.put", row is not None and services.in_registry(), edit),
        ("trace.start", True, Action("Trace", f"{reverse('console:trace_start')}?{trace}")),
        ("limit.set", True, Action("Limit", f"{reverse('console:limit_set')}?{query}")),
        ("session.kick", bool(held), Action("Kick all", reverse("console:twin_kick", args=[twin]))),
        (
            "queue.purge",
            banned or row is None,
            Action("Purge queues", reverse("console:twin_purge", args=[twin]), danger=True),
        ),
        ("ban.lift" if banned else "ban.set", True, ban),
        ("twin.remove", row is not None and services.removable(row.source), remove),
    )
    return [action for needed, fits, action in offered if fits and may(request, needed)]


def _list(name: str, twin: int) -> str:
    return f"{reverse(f'console:{name}')}?{urlencode({'twin': twin})}"


def _or_none(read: Callable[[], Value]) -> Value | None:
    """Read from a store; None if it is unavailable, which other parts of the page report."""
    try:
        return read()
    except Away:
        return None
