"""Limits and bans of SBD: their table on the page of limits and bans, and the actions."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from proto.sbd.bounds import PATH_CHARS
from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.audit.models import AuditEntry
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Table
from relay.dashboard.tables import given as given_text
from relay.dashboard.views.limit_acts import BanForm
from relay.limits import sbd
from relay.limits.models import MAX_KBIT_PER_S, SbdLimit
from relay.ops.paging import Page

COLUMNS: Final = (
    Column("subject", "Key or network", Cell.CODE, order="subject"),
    Column("ban", "Ban", Cell.STATE),
    Column("reason", "Reason"),
    Column("until", "Ends", Cell.MOMENT, hint="-: never"),
    Column("kbit_per_s", "kbit/s", Kind.NUMBER, hint="0: no limit; -: the limit of the settings"),
    Column("by", "By", hint="account of the last decision, from the audit log"),
    Column("updated", "Changed", Cell.MOMENT, order="updated"),
)
FILTERS: Final = (
    Filter("text", "Search", hint="key, network or reason"),
    Filter("ban", "Ban", (("yes", "banned"), ("no", "not banned"))),
)
_CHOICES: Final = {"yes": True, "no": False}
_BANNED: Final = State("banned", Tone.BAD)
_OVER: Final = State("over", Tone.IDLE, "the ban has expired; the relay lifts it within a minute")


def is_shown() -> bool:
    """Check whether SBD is enabled or has any decisions."""
    return settings.RMB.sbd.enabled or SbdLimit.objects.exists()


def table(request: HttpRequest, rights: dict[str, bool]) -> Table:
    """Return the table of decisions about SBD keys, and about networks in SBD."""

    def decided(ask: Ask) -> Page[Row]:
        rows = sbd.search(ask.filters["text"], banned=ask.choice("ban", _CHOICES))
        found = ask.page(rows, sbd.ORDERS)
        deciders = sbd.deciders(row.subject for row in found.items)
        return Page(
            [_row(row, deciders.get(row.subject), rights) for row in found.items], found.next
        )

    return Table(
        request, "sbd-limits", COLUMNS, decided, order="-updated", filters=FILTERS,
        title="Keys and networks of SBD", prefix="s-",
        empty="No key is banned, and the limit of the settings applies to all.",
    )  # fmt: skip


def page_actions(rights: dict[str, bool]) -> list[Action]:
    """Return the buttons for decisions that are not in the table yet."""
    actions = []
    if rights["limit.set"]:
        actions.append(Action("Limit in SBD", reverse("console:limit_sbd")))
    if rights["ban.set"]:
        actions.append(Action("Ban a key", reverse("console:limit_key_ban"), danger=True))
    return actions


def _row(row: SbdLimit, decider: AuditEntry | None, rights: dict[str, bool]) -> Row:
    values = {
        "subject": row.subject,
        "ban": (_OVER if row.ban_is_over() else _BANNED) if row.banned else None,
        "reason": row.ban_reason,
        "until": row.banned_until,
        "kbit_per_s": row.kbit_per_s,
        "by": decider and decider.actor,
        "updated": row.updated,
    }
    query = urlencode({"subject": row.subject})
    actions = []
    if rights["limit.set"]:
        actions.append(Action("Limit", f"{reverse('console:limit_sbd')}?{query}"))
    if row.banned and rights["ban.lift"]:
        actions.append(Action("Lift", f"{reverse('console:limit_key_lift')}?{query}"))
    if row.is_key and not row.banned and rights["ban.set"]:
        url = f"{reverse('console:limit_key_ban')}?{query}"
        actions.append(Action("Ban", url, danger=True))
    audit = f"{reverse('console:audit')}?{urlencode({'target': row.subject})}"
    return Row(values, {"by": audit} if decider else {}, actions)


class KeyBanForm(BanForm):
    """A ban of a key."""

    key = forms.CharField(
        max_length=sbd.MAX_SHOWN_CHARS,
        help_text=f"{PATH_CHARS} characters of base64url, as in the path its client connects to.",
    )
    field_order = ("key",)


class SbdLimitForm(forms.Form):
    """A limit of one key or network."""

    subject = forms.CharField(
        label="Key, address or network",
        max_length=sbd.MAX_SHOWN_CHARS,
        help_text="A key as in the path its client connects to, or such as 192.0.2.0/24.",
    )
    kbit_per_s = forms.IntegerField(
        label="Kilobits per second",
        min_value=0,
        max_value=MAX_KBIT_PER_S,
        required=False,
        help_text="0: no limit. Empty: the limit of the settings.",
    )


@page("ban.set")
def ban(request: HttpRequest) -> HttpResponseBase:
    """Ban a key."""
    named = given_text(request, "subject")[: sbd.MAX_SHOWN_CHARS]
    form = KeyBanForm(posted(request), initial={"key": named})

    def perform(actor: Actor) -> str:
        given = form.cleaned_data
        row = sbd.ban(given["key"], given["reason"], form.ends, actor=actor)
        return f"Key {row.subject} is banned"

    question = Question(
        f"Ban key {named}" if named else "Ban a key of SBD",
        "Ban",
        "The relay ends the connection of the key within a second, and answers its "
        "handshakes with 403. A client can generate a new key at any time, so a ban of "
        "its address is more effective.",
        danger=True,
    )
    return act(request, question, perform, reverse("console:limits"), form)


@page("ban.lift")
def lift(request: HttpRequest) -> HttpResponseBase:
    """Lift the ban of a key."""
    named = given_text(request, "subject")
    row = sbd.find(named)
    if row is None or not row.banned:
        raise NotFound(f"key {named} is not banned" if named else "enter a banned key")

    def perform(actor: Actor) -> str:
        return f"Key {sbd.lift_ban(row.subject, actor=actor)} is not banned any more"

    why = f" It was banned for: {row.ban_reason}." if row.ban_reason else ""
    text = f"The key can connect again within a second.{why}"
    question = Question(f"Lift the ban of key {row.subject}", "Lift", text)
    return act(request, question, perform, reverse("console:limits"))


@page("limit.set")
def limit(request: HttpRequest) -> HttpResponseBase:
    """Set a limit for one key or network, or remove it."""
    named = given_text(request, "subject")[: sbd.MAX_SHOWN_CHARS]
    present = sbd.find(named)
    initial = {"subject": named, "kbit_per_s": present and present.kbit_per_s}
    form = SbdLimitForm(posted(request), initial=initial)

    def perform(actor: Actor) -> str:
        given = form.cleaned_data
        row = sbd.set_limit(given["subject"], given["kbit_per_s"], actor=actor)
        own = row.kbit_per_s is not None
        return f"{row.subject} has {'a limit of its own' if own else 'the limit of the settings'}"

    question = Question(
        f"Limit {named} in SBD" if named else "Limit a key or network of SBD",
        "Set",
        "The limit applies within a second, also to open connections. Packets of a key "
        "with its own limit do not count for its address. The limit of a network applies "
        "to each of its addresses.",
    )
    return act(request, question, perform, reverse("console:limits"), form)
