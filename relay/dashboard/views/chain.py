"""The page of the chain: progress of following it, the import of all twins, and latest events."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse

from relay.access.actor import Actor
from relay.dashboard.acts import Question, act
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page, render
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Row, Table, respond
from relay.ops.paging import Page
from relay.twins import chain_events, chain_services
from relay.twins.chain_services import ChainStatus, ImportStatus, Told
from relay.twins.source import split_relays

FACTS: Final = "chain-facts"

COLUMNS: Final = (
    Column("at", "When", Cell.MOMENT),
    Column("height", "Block", Kind.NUMBER),
    Column("what", "What", Cell.STATE),
    Column("twin", "Twin", Cell.TEXT),
    Column("relays", "Relays now", Cell.TEXT, hint="as stored in the mirror"),
    Column("account", "Account", Cell.CODE, optional=True),
)
IMPORTS: Final = {
    "never": State("never", Tone.IDLE, "no import was needed yet"),
    "wanted": State("wanted", Tone.INFO, "begins within seconds"),
    "running": State("running", Tone.INFO),
    "waiting": State("waiting", Tone.WARNING, "continues where it stopped"),
    "done": State("done", Tone.GOOD),
}
EVENTS: Final = {
    chain_events.Kind.CHANGED: State("changed", Tone.INFO, "a twin was added or changed"),
    chain_events.Kind.REVERTED: State("reverted", Tone.WARNING, "blocks of a fork were discarded"),
    chain_events.Kind.MISSED: State(
        "blocks skipped", Tone.WARNING, "any twin may have changed: all twins are read again"
    ),
}


@page("chain.view")
def chain(request: HttpRequest) -> HttpResponseBase:
    """Show the state of the chain, or that this relay follows none."""
    status = chain_services.status()
    if not status.used:
        mirrored = {"mirrored": status.mirrored}
        return render(request, "relay_dashboard/chain_unused.html", "Chain", mirrored)
    context = _facts(status)
    if request.headers.get("HX-Target") == FACTS:
        return TemplateResponse(request, "relay_dashboard/chain_facts.html", context)
    if may(request, "chain.import"):
        context["actions"] = [Action("Import all twins", reverse("console:chain_import"))]

    def fetch(ask: Ask) -> Page[Row]:
        found = chain_services.list_events(limit=ask.limit, cursor=ask.cursor)
        return Page([_row(told) for told in found.items], found.next)

    table = Table(
        request, "events", COLUMNS, fetch, title="Events", live=True,
        empty="The chain has reported no change of a twin yet.",
    )  # fmt: skip
    return respond(request, table, "relay_dashboard/chain.html", "Chain", context)


@page("chain.import")
def start_import(request: HttpRequest) -> HttpResponseBase:
    """Start an import of all twins from the chain."""
    status = chain_services.status()
    begun = status.imported

    def perform(actor: Actor) -> str:
        chain_services.start_import(actor=actor)
        return "The import is started"

    going_on = f" The running import continues after {begun.twins:,} twins."
    question = Question(
        "Import all twins from the chain",
        "Import",
        "The relay reads every twin from a node and stores it in the mirror, while sessions and "
        f"messages continue. The mirror now has {status.mirrored:,} twins."
        + (going_on if begun.state in ("running", "waiting") else ""),
    )
    return act(request, question, perform, reverse("console:chain"))


def _facts(status: ChainStatus) -> dict[str, Any]:
    following = State("following", Tone.GOOD)
    if not status.following:
        following = State("not followed", Tone.BAD)
    return {
        "facts_id": FACTS,
        "status": status,
        "following": following,
        "imported": IMPORTS[status.imported.state],
        "progress": _progress(status.imported),
    }


def _progress(imported: ImportStatus) -> float | None:
    """Return the fraction of twins imported; None if no import is in progress."""
    if imported.state not in ("running", "waiting") or not imported.newest_id:
        return None
    return min(1.0, imported.twins / imported.newest_id)


def _row(told: Told) -> Row:
    event, twin = told
    links = {"twin": reverse("console:twin", args=[event.twin])} if event.twin else {}
    values = {
        "at": event.at,
        "height": event.height,
        "what": EVENTS.get(event.kind, State(event.kind, Tone.IDLE)),  # type: ignore[call-overload]
        "twin": event.twin or "all",
        "relays": ", ".join(split_relays(twin.relays)) if twin else "",
        "account": twin.address if twin else "",
    }
    return Row(values, links)
