"""One partner relay: its state, messages that wait for it with their attempts, and dead letters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse

from relay.dashboard import letters, relays
from relay.dashboard.pages import may, page
from relay.dashboard.tables import Action, Ask, Fetch, Row, Table, respond_all
from relay.dashboard.views.letters import letter_actions
from relay.federation import letter_lists, listing
from relay.federation.letters import MAX_SHOWN, Letter
from relay.ops.paging import Page

FACTS: Final = "relay-facts"
TRIES_SHOWN: Final = 10


@page("relay.view")
def relay(request: HttpRequest, domain: str) -> HttpResponseBase:
    """Show the facts of a partner relay, and the messages for it."""
    shown = listing.get(domain)
    domain = shown.domain
    context: dict[str, Any] = {
        "relay": shown,
        "state": relays.state_of(shown),
        "latency_s": shown.live.latency_ms / 1000 or None,
        "out_rate": shown.traffic.out if shown.traffic else None,
        "in_rate": shown.traffic.into if shown.traffic else None,
        "tally": listing.tally(domain),
        "facts_id": FACTS,
        "period_s": settings.RMB.federation.ranker_period_s,
    }
    if request.headers.get("HX-Target") == FACTS:
        return TemplateResponse(request, "relay_dashboard/relay_facts.html", context)
    context["actions"] = [*relays.actions(request, shown), *_record(request, shown)]
    if may(request, "letter.requeue") and letter_lists.count_dead(domain):
        url = reverse("console:relay_requeue", args=[domain])
        context["actions"].append(Action("Requeue dead letters", url))

    @functools.cache
    def read() -> list[Letter]:
        return letter_lists.waiting(relay=domain, limit=MAX_SHOWN).items

    query = urlencode({"relay": domain})
    tables = [
        Table(
            request, "waiting", letters.WAITING, _waiting(read),
            title="Waiting in the outbox", empty=f"No messages wait for {domain}.",
            live=True, prefix="w-", all_url=f"{reverse('console:outbox')}?{query}",
        ),
        Table(
            request, "tries", letters.TRIES_OF_MANY, _tries(domain, read),
            title="Latest failed attempts of waiting messages",
            empty="No failed attempts.",
            live=True, prefix="t-", short=TRIES_SHOWN,
        ),
        Table(
            request, "dead", letters.DEAD, _dead(request, domain),
            title="Dead letters", empty=f"No message for {domain} failed permanently.",
            live=True, prefix="d-", all_url=f"{reverse('console:letters')}?{query}",
        ),
    ]  # fmt: skip
    if not may(request, "letter.view"):
        tables = []
    return respond_all(request, tables, "relay_dashboard/relay.html", domain, context)


def _record(request: HttpRequest, shown: listing.Relay) -> list[Action]:
    """Return the button that opens the relay's database record, which contains its note."""
    if not may(request, "relay.put"):
        return []
    url = f"{reverse('console:relay_record')}?{urlencode({'domain': shown.domain})}"
    return [Action("Edit record" if shown.recorded else "Add record", url)]


def _waiting(read: Callable[[], list[Letter]]) -> Fetch:
    def fetch(ask: Ask) -> Page[Row]:
        return Page([letters.row(each) for each in read()[: ask.limit]], "")

    return fetch


def _tries(domain: str, read: Callable[[], list[Letter]]) -> Fetch:
    def fetch(ask: Ask) -> Page[Row]:
        return Page(letters.tries_at(domain, read())[: ask.limit], "")

    return fetch


def _dead(request: HttpRequest, domain: str) -> Fetch:
    def fetch(ask: Ask) -> Page[Row]:
        found = letter_lists.dead(relay=domain, limit=min(ask.limit, MAX_SHOWN), cursor=ask.cursor)
        rows = [letters.row(each, letter_actions(request, each)) for each in found.items]
        return Page(rows, found.next)

    return fetch
