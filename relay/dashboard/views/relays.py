"""Pages of federation: a map and a table of partner relays, and the decisions about them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

from django import forms
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse

from proto.federation.domains import fold
from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.dashboard import graph, relays
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import State
from relay.dashboard.tables import (
    Action,
    Ask,
    Cell,
    Column,
    Fetch,
    Filter,
    Row,
    Table,
    given,
    href,
    refresh_ms,
    respond,
)
from relay.federation import listing, services
from relay.federation.listing import Health, Relay
from relay.federation.models import RelayNode
from relay.ops.paging import Page

MAP: Final = "relay-map"

COLUMNS: Final = (
    Column("domain", "Relay", Cell.TEXT, order="domain"),
    Column("state", "State", Cell.STATE, order="health"),
    Column("decided", "Decided", Cell.TEXT, hint="trusted, paused, blocked"),
    Column("out_rate", "Out", Kind.RATE, order="traffic",
           hint="messages that the partner relay accepted, over the last minute"),
    Column("in_rate", "In", Kind.RATE,
           hint="messages that the partner relay sent, over the last minute"),
    Column("latency_s", "Latency", Kind.DURATION, order="latency",
           hint="average duration of a request"),
    Column("rank", "Rank", Kind.NUMBER, order="rank",
           hint="failures per hour; relays with fewer failures are tried first"),
    Column("failures", "Failures", Kind.NUMBER, order="failures", hint="in the ranker's period"),
    Column("retry_at", "Next attempt", Cell.MOMENT, order="retry",
           hint="back-off: the relay sends nothing before this time"),
    Column("last_success", "Success", Cell.MOMENT, order="success",
           hint="last time the partner relay accepted a message"),
    Column("held", "Waiting", Kind.NUMBER, order="held",
           hint="in the outbox, for twins that list only this relay"),
    Column("oldest_at", "Oldest", Cell.MOMENT, order="oldest"),
    Column("sent", "Total out", Kind.NUMBER, order="sent", optional=True),
    Column("received", "Total in", Kind.NUMBER, order="received", optional=True),
    Column("held_bytes", "Waiting size", Kind.BYTES, optional=True),
    Column("kind", "Kind", Cell.TEXT, optional=True,
           hint="ours: accepts many messages per request; reference: one"),
    Column("heard", "Last received", Cell.MOMENT, optional=True,
           hint="last time this relay accepted a message from the partner relay"),
    Column("last_error", "Last error", Cell.TEXT, optional=True),
    Column("note", "Note", Cell.TEXT, optional=True),
)  # fmt: skip
FILTERS: Final = (
    Filter("domain", "Relay", hint="part of a domain"),
    Filter("state", "State", tuple((str(each), str(each)) for each in Health)),
    Filter("decided", "Decided", tuple((each, each) for each in ("trusted", "paused", "blocked"))),
)


@page("relay.view")
def federation(request: HttpRequest) -> HttpResponseBase:
    """Show the map and the table."""
    look = _Look()
    if request.headers.get("HX-Target") == MAP:
        return TemplateResponse(request, "relay_dashboard/relay_map.html", look.context(request))
    table = Table(
        request, "relays", COLUMNS, _fetch(request, look), order="health", filters=FILTERS,
        empty="No partner relay is known yet. A relay that twins list appears when it is first "
            "used.",
        live=True,
    )  # fmt: skip
    context: dict[str, Any] = {"look": look}
    if may(request, "relay.add"):
        context["actions"] = [Action("Add a relay", reverse("console:relay_record"))]
    if not _alone(request):
        context |= look.context(request)
    return respond(request, table, "relay_dashboard/relays.html", "Federation", context)


@page("relay.put")
def decide(request: HttpRequest, domain: str, verb: str) -> HttpResponseBase:
    """Pause, resume, block, unblock, trust, no longer trust, or reset one relay."""
    chosen = relays.VERBS.get(verb)
    if chosen is None:
        raise NotFound(f"unknown decision {verb} about a relay")
    relay = listing.get(domain)

    def perform(actor: Actor) -> str:
        chosen.perform(relay.domain, actor)
        return f"{relay.domain} {chosen.done}"

    return act(request, chosen.ask(relay), perform, reverse("console:relays"))


class RecordForm(forms.ModelForm):  # type: ignore[type-arg]
    """The decisions about a relay; its domain may be entered in any spelling."""

    class Meta:
        model = RelayNode
        fields = ("domain", "trusted", "paused", "blocked", "note")
        widgets: ClassVar = {"note": forms.Textarea(attrs={"rows": 3})}

    def clean_domain(self) -> str:
        return fold(self.cleaned_data["domain"])


@page("relay.put")
def record(request: HttpRequest) -> HttpResponseBase:
    """Add or change the record of a relay, which contains its note."""
    domain = fold(given(request, "domain"))
    stored = RelayNode.objects.filter(domain=domain).first()
    form = RecordForm(posted(request), initial={"domain": domain}, instance=stored)
    if stored is not None:
        form.fields["domain"].disabled = True

    def perform(actor: Actor) -> str:
        services.save(form.instance, actor=actor)
        return f"The record of {form.instance} is stored"

    title = f"Edit the record of {domain}" if stored else "Add a relay"
    question = Question(title, "Save", "The change takes effect within a second.")
    return act(request, question, perform, reverse("console:relays"), form)


@page("relay.forget")
def forget(request: HttpRequest, domain: str) -> HttpResponseBase:
    """Remove a relay's record, rank and counts."""
    relay = listing.get(domain)

    def perform(actor: Actor) -> str:
        services.forget([relay.domain], actor=actor)
        return f"{relay.domain} is removed"

    return act(request, relays.forgetting(relay), perform, reverse("console:relays"))


class _Look:
    """All partner relays, read on first use and shared by the map and the table."""

    @cached_property
    def relays(self) -> list[Relay]:
        return listing.look()

    def context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of the map."""
        began = time.perf_counter()
        shown = listing.busiest(self.relays, graph.MAX_SHOWN)
        took_s = time.perf_counter() - began
        counts = Counter(relay.health for relay in self.relays)
        return {
            "map_id": MAP,
            "refresh_ms": refresh_ms(took_s),
            "graph": graph.draw(shown, len(self.relays) - len(shown)),
            "states": [
                (relays.state(each), counts[each], _filtered(request, each))
                for each in Health
                if counts[each]
            ],
            "own": settings.RMB.relay.domains[0] if settings.RMB.relay.domains else "",
        }


def _filtered(request: HttpRequest, health: Health) -> str:
    return href(request, state=str(health)) + "#table-relays"


def _alone(request: HttpRequest) -> bool:
    """Check whether only the table is requested, as part of a page or as a file."""
    return request.headers.get("HX-Target") == "table-relays" or "export" in request.GET


def _fetch(request: HttpRequest, look: _Look) -> Fetch:
    def fetch(ask: Ask) -> Page[Row]:
        found = listing.page(
            _matching(look.relays, ask), order=ask.order, limit=ask.limit, cursor=ask.cursor
        )
        return Page([_row(request, relay) for relay in found.items], found.next)

    return fetch


def _matching(found: Sequence[Relay], ask: Ask) -> list[Relay]:
    part, state, decided = (ask.filters[name] for name in ("domain", "state", "decided"))
    return [
        relay
        for relay in found
        if (part.lower() in relay.domain or fold(part) == relay.domain)
        and (not state or relay.health == state)
        and (not decided or decided in relay.flags)
    ]


def _row(request: HttpRequest, relay: Relay) -> Row:
    live = relay.live
    state: State = relays.state_of(relay)
    values = {
        "domain": relay.domain,
        "state": state,
        "decided": ", ".join(relay.flags),
        "out_rate": relay.traffic.out if relay.traffic else None,
        "in_rate": relay.traffic.into if relay.traffic else None,
        "latency_s": live.latency_ms / 1000 if live.latency_ms else None,
        "rank": live.rate_per_hour,
        "failures": live.failures,
        "retry_at": live.retry_at if relay.health is Health.BACKED_OFF else None,
        "last_success": live.last_success or None,
        "held": live.held.messages,
        "oldest_at": live.oldest_at or None,
        "sent": live.sent,
        "received": live.received,
        "held_bytes": live.held.size_bytes,
        "kind": live.kind,
        "heard": live.heard or None,
        "last_error": live.last_error,
        "note": relay.note,
    }
    url = reverse("console:relay", args=[relay.domain])
    return Row(values, {"domain": url}, relays.actions(request, relay))
