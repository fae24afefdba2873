"""The page of limits and bans: decisions about twins, addresses and keys, and the most refused."""

from __future__ import annotations

import functools
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from proto.limits.addresses import place_of
from relay.audit.models import AuditEntry
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Table, respond_all
from relay.dashboard.views import limits_sbd
from relay.limits import addresses, defaults, hits, listing
from relay.limits.hits import AddressHits, TwinHits
from relay.limits.models import AddressBan, TwinLimit
from relay.ops.paging import Page

COLUMNS: Final = (
    Column("twin", "Twin", Cell.CODE, order="twin"),
    Column("ban", "Ban", Cell.STATE),
    Column("reason", "Reason"),
    Column("until", "Ends", Cell.MOMENT, hint="-: never"),
    Column("count", "Messages/min", Kind.NUMBER, hint="0: no limit; -: the limit of all twins"),
    Column("size", "Bytes/min", Kind.BYTES, hint="also the limit of a single message"),
    Column("by", "By", hint="account of the last decision, from the audit log"),
    Column("updated", "Changed", Cell.MOMENT, order="updated"),
    Column("note", "Note", optional=True),
)
FILTERS: Final = (
    Filter("text", "Search", hint="id, reason or note"),
    Filter("ban", "Ban", (("yes", "banned"), ("no", "not banned"))),
    Filter("limit", "Limit", (("yes", "of its own"), ("no", "of all twins"))),
)
_CHOICES: Final = {"yes": True, "no": False}
TWIN_HITS: Final = (
    Column("twin", "Twin", Cell.CODE),
    Column("messages", "Refused", Kind.NUMBER, hint="messages over the limit, in the last hour"),
    Column("state", "Decided", Cell.STATE),
)
ADDRESS_HITS: Final = (
    Column("address", "Address", Cell.CODE),
    Column("messages", "Messages", Kind.NUMBER, hint="over the limits of twins, in the last hour"),
    Column("handshakes", "Sign-ins", Kind.NUMBER, hint="over the limit of the address, or banned"),
    Column("state", "Decided", Cell.STATE),
)
ADDRESSES: Final = (
    Column("network", "Address", Cell.CODE, order="network"),
    Column("state", "Ban", Cell.STATE),
    Column("reason", "Reason"),
    Column("until", "Ends", Cell.MOMENT, hint="-: never"),
    Column("by", "By", hint="account of the last ban, from the audit log"),
    Column("updated", "Changed", Cell.MOMENT, order="updated"),
)
ADDRESS_FILTERS: Final = (Filter("text", "Search", hint="address, network or reason"),)
BANNED: Final = State("banned", Tone.BAD)
OVER: Final = State("over", Tone.IDLE, "the ban has expired; the relay lifts it within a minute")
LIMITED: Final = State("own limit", Tone.INFO)
_NEEDED: Final = ("limit.set", "limit.remove", "limit.default", "ban.set", "ban.lift")
TOP: Final = 10
"""Number of twins and of addresses refused most that are shown."""


@page("limit.view")
def limits(request: HttpRequest) -> HttpResponseBase:
    """Show all decisions, and the twins and addresses refused most within the last hour."""
    rights = {name: may(request, name) for name in _NEEDED}

    def decided(ask: Ask) -> Page[Row]:
        rows = listing.search(
            ask.filters["text"],
            banned=ask.choice("ban", _CHOICES),
            limited=ask.choice("limit", _CHOICES),
        )
        found = ask.page(rows, listing.ORDERS)
        deciders = listing.deciders(row.twin for row in found.items)
        return Page([_row(row, deciders.get(row.twin), rights) for row in found.items], found.next)

    @functools.cache
    def top() -> hits.Top:
        return hits.top(TOP)

    def twin_hits(ask: Ask) -> Page[Row]:
        return Page([_twin_hits(each, rights) for each in top().twins], "")

    def address_hits(ask: Ask) -> Page[Row]:
        return Page([_address_hits(each, rights) for each in top().addresses], "")

    def banned_addresses(ask: Ask) -> Page[Row]:
        found = ask.page(addresses.search(ask.filters["text"]), addresses.ORDERS)
        deciders = addresses.deciders(row.network for row in found.items)
        rows = [_address(row, deciders.get(row.network), rights) for row in found.items]
        return Page(rows, found.next)

    tables = (
        Table(
            request, "limits", COLUMNS, decided, order="-updated", filters=FILTERS,
            title="Twins with decisions",
            empty="No decisions about single twins: the limit of all twins applies.",
        ),
        Table(
            request, "limit-hits-twins", TWIN_HITS, twin_hits, title="Twins refused most",
            short=TOP, live=True, prefix="t-", empty="No message was refused in the last hour.",
        ),
        Table(
            request, "limit-hits-addresses", ADDRESS_HITS, address_hits, short=TOP, live=True,
            title="Addresses refused most", prefix="a-",
            empty="No address was refused in the last hour.",
        ),
        Table(
            request, "banned-addresses", ADDRESSES, banned_addresses, order="-updated",
            filters=ADDRESS_FILTERS, title="Banned addresses", prefix="b-",
            empty="No address is banned.",
        ),
        *([limits_sbd.table(request, rights)] if limits_sbd.is_shown() else []),
    )  # fmt: skip
    default = defaults.get()
    context = {
        "default": default,
        "changeable": rights["limit.default"],
        "actions": _page_actions(rights),
    }
    return respond_all(request, tables, "relay_dashboard/limits.html", "Limits and bans", context)


def _page_actions(rights: dict[str, bool]) -> list[Action]:
    actions = []
    if rights["limit.set"]:
        actions.append(Action("Limit a twin", reverse("console:limit_set")))
    if rights["ban.set"]:
        actions.append(Action("Ban a twin", reverse("console:limit_ban"), danger=True))
        url = reverse("console:limit_address_ban")
        actions.append(Action("Ban an address", url, danger=True))
    if limits_sbd.is_shown():
        actions += limits_sbd.page_actions(rights)
    return actions


def _row(limit: TwinLimit, decider: AuditEntry | None, rights: dict[str, bool]) -> Row:
    holds = limit.ban_holds()
    values = {
        "twin": limit.twin,
        "ban": BANNED if holds else OVER if limit.banned else None,
        "reason": limit.ban_reason,
        "until": limit.banned_until,
        "count": limit.count,
        "size": limit.size,
        "by": decider and decider.actor,
        "updated": limit.updated,
        "note": limit.note,
    }
    actions = _twin_actions(limit.twin, limit.banned, rights)
    if rights["limit.remove"]:
        url = reverse("console:limit_remove", args=[limit.twin])
        actions.append(Action("Forget", url, danger=True))
    audit = f"{reverse('console:audit')}?{urlencode({'target': limit.twin})}"
    links = _links(limit.twin) | ({"by": audit} if decider else {})
    return Row(values, links, actions)


def _twin_hits(found: TwinHits, rights: dict[str, bool]) -> Row:
    state = BANNED if found.banned else LIMITED if found.limited else None
    values = {"twin": found.twin, "messages": found.messages, "state": state}
    return Row(values, _links(found.twin), _twin_actions(found.twin, found.banned, rights))


def _address_hits(found: AddressHits, rights: dict[str, bool]) -> Row:
    values: dict[str, Any] = {
        "address": found.address,
        "messages": found.messages,
        "handshakes": found.handshakes,
        "state": BANNED if found.banned else None,
    }
    query = urlencode({"address": found.address})
    links = {"address": f"{reverse('console:sessions')}?{query}"}
    if found.banned or not rights["ban.set"]:
        return Row(values, links)
    query = urlencode({"network": place_of(found.address)})
    url = f"{reverse('console:limit_address_ban')}?{query}"
    return Row(values, links, [Action("Ban", url, danger=True)])


def _address(ban: AddressBan, decider: AuditEntry | None, rights: dict[str, bool]) -> Row:
    values = {
        "network": ban.network,
        "state": OVER if ban.is_over() else BANNED,
        "reason": ban.reason,
        "until": ban.until,
        "by": decider and decider.actor,
        "updated": ban.updated,
    }
    query = urlencode({"network": ban.network})
    actions = []
    if rights["ban.set"]:
        actions.append(Action("Change", f"{reverse('console:limit_address_ban')}?{query}"))
    if rights["ban.lift"]:
        actions.append(Action("Lift", f"{reverse('console:limit_address_lift')}?{query}"))
    audit = f"{reverse('console:audit')}?{urlencode({'target': ban.network})}"
    return Row(values, {"by": audit} if decider else {}, actions)


def _twin_actions(twin: int, banned: bool, rights: dict[str, bool]) -> list[Action]:
    query = urlencode({"twin": twin})
    actions: list[Action] = []
    if rights["limit.set"]:
        actions.append(Action("Limit", f"{reverse('console:limit_set')}?{query}"))
    if banned and rights["ban.lift"]:
        actions.append(Action("Lift", reverse("console:limit_lift", args=[twin])))
    if not banned and rights["ban.set"]:
        actions.append(Action("Ban", f"{reverse('console:limit_ban')}?{query}", danger=True))
    return actions


def _links(twin: int) -> dict[str, str]:
    return {"twin": reverse("console:twin", args=[twin])}
