"""Pages of twins: the list of all known twins, and the import of a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from django import forms
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.actor import Actor
from relay.access.errors import Invalid
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.figures import OVER, Kind, write
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Table, respond
from relay.limits import listing as limits
from relay.limits.models import TwinLimit
from relay.ops.paging import Page
from relay.sessions import listing as sessions
from relay.twins import csv_io, listing, services
from relay.twins.listing import Listed
from relay.twins.models import Twin
from relay.twins.source import split_relays

COLUMNS: Final = (
    Column("id", "Twin", Cell.CODE, order="id", hint="link to the page of the twin"),
    Column("state", "State", Cell.STATE, hint="as in the database, up to two seconds old"),
    Column("sessions", "Sessions", Kind.NUMBER, hint="connected now"),
    Column("rate_in", "In", Kind.RATE, order="rate_in", hint=f"messages from its sessions, {OVER}"),
    Column("rate_out", "Out", Kind.RATE, order="rate_out",
           hint=f"messages to its sessions, {OVER}"),
    Column("relays", "Relays", hint="relays that serve the twin"),
    Column("limit", "Limit", hint="own limit: messages and bytes per minute"),
    Column("account", "Account", Cell.CODE),
    Column("pk", "Key (pk)", Cell.CODE, optional=True, hint="key to encrypt messages to the twin"),
    Column("source", "Source", hint="the registry of this relay, or the chain"),
    Column("updated", "Changed", Cell.MOMENT, order="updated"),
    Column("height", "Block", Kind.NUMBER, optional=True, hint="at which the twin was read"),
    Column("stale_since", "Stale since", Kind.NUMBER, optional=True,
           hint="block after which the twin may have changed"),
    Column("version", "Version", Kind.NUMBER, optional=True, hint="increases with every change"),
)  # fmt: skip
FILTERS: Final = (
    Filter("text", "Search", hint="id, account, relay"),
    Filter("relay", "Relay", hint="full name of a relay"),
    Filter("source", "Source", [(each.value, each.value) for each in Twin.Source]),
    Filter("state", "State", (("connected", "connected"), ("away", "away"), ("banned", "banned"))),
)
MAX_FILE_BYTES: Final = 16 << 20
"""Maximum size of an imported file, which is read into memory; the command accepts larger ones."""
MAX_TOLD: Final = 10
"""Maximum number of invalid lines that are reported."""


@page("twin.view")
def twins(request: HttpRequest) -> HttpResponseBase:
    """List all twins."""

    def fetch(ask: Ask) -> Page[Row]:
        state = ask.filters["state"]
        rows = listing.search(
            ask.filters["text"],
            relay=ask.filters["relay"],
            source=ask.filters["source"],
            banned=True if state == "banned" else None,
            connected={"connected": True, "away": False}.get(state),
        )
        found = listing.page(rows, order=ask.order, limit=ask.limit, cursor=ask.cursor)
        return Page(_rows(found.items), found.next)

    table = Table(
        request, "twins", COLUMNS, fetch, order="id", filters=FILTERS,
        empty="No twins are known, so no client can connect.", live=True,
    )  # fmt: skip
    context = {"actions": _actions(request)}
    return respond(request, table, "relay_dashboard/table_page.html", "Twins", context)


class ImportForm(forms.Form):
    """A file of twins to import."""

    file = forms.FileField(
        label="CSV file",
        help_text="UTF-8, at most 16 MiB, with the header id,account,pk,relays. Relays are joined "
        "by an underscore.",
    )
    keep_going = forms.BooleanField(
        label="Import valid lines even if others have errors", required=False
    )

    def clean_file(self) -> str:
        given = self.cleaned_data["file"]
        if given.size > MAX_FILE_BYTES:
            raise forms.ValidationError("The file is larger than 16 MiB.")
        try:
            return str(given.read().decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise forms.ValidationError("The file is not UTF-8.") from None


@page("twin.import")
def take_in(request: HttpRequest) -> HttpResponseBase:
    """Add and change twins from a file."""
    form = ImportForm(posted(request), request.FILES or None)

    def perform(actor: Actor) -> str:
        text, keep_going = form.cleaned_data["file"], form.cleaned_data["keep_going"]
        try:
            report = csv_io.import_twins(
                io.StringIO(text, newline=""), actor=actor, keep_going=keep_going
            )
        except csv_io.ImportRefusedError as refused:
            wrong = "; ".join(map(str, refused.report.errors[:MAX_TOLD]))
            raise Invalid(fields={"file": f"{refused}: {wrong}"}) from None
        told = (
            f"{report.rows:,} lines read: {report.added:,} twins added, {report.changed:,} changed"
        )
        return f"{told}, {report.error_count:,} lines with errors" if report.error_count else told

    question = Question(
        "Import twins",
        "Import",
        "The import adds and changes the twins in the file. Other twins stay as they are.",
    )
    return act(request, question, perform, reverse("console:twins"), form)


def state_of(limit: TwinLimit | None, held: int) -> State:
    """Return whether a twin is connected, or banned."""
    if limit is not None and limit.ban_holds():
        return State("banned", Tone.BAD, limit.ban_reason)
    return State("connected", Tone.GOOD) if held else State("away", Tone.IDLE)


def limit_of(limit: TwinLimit | None) -> str:
    """Describe a twin's own limit; empty if the limit of all twins applies."""
    if limit is None or limit.count is None:
        return ""
    if not limit.count:
        return "none"
    return f"{write(limit.count, Kind.NUMBER)} messages, {write(limit.size or 0, Kind.BYTES)}"


def key_text(twin: Twin) -> str:
    """Return the encryption key as text; empty if the twin has none."""
    return f"0x{bytes(twin.encryption_key).hex()}" if twin.encryption_key else ""


def _actions(request: HttpRequest) -> list[Action]:
    if not services.in_registry():
        return []
    actions = []
    if may(request, "twin.import"):
        actions.append(Action("Import", reverse("console:twin_import")))
    if may(request, "twin.add"):
        actions.append(Action("Add a twin", reverse("console:twin_add")))
    return actions


def _rows(found: Sequence[Listed]) -> list[Row]:
    ids = [twin.id for twin, _ in found]
    decided, held = limits.of(ids), sessions.open_of(ids)
    return [_row(each, decided.get(each.row.id), held.get(each.row.id, 0)) for each in found]


def _row(found: Listed, limit: TwinLimit | None, held: int) -> Row:
    twin, flow = found
    values = {
        "id": twin.id,
        "state": state_of(limit, held),
        "sessions": held,
        "rate_in": flow and flow.rate_in,
        "rate_out": flow and flow.rate_out,
        "relays": ", ".join(split_relays(twin.relays)),
        "limit": limit_of(limit),
        "account": twin.address,
        "pk": key_text(twin),
        "source": twin.source,
        "updated": twin.updated,
        "height": twin.height,
        "stale_since": twin.stale_since,
        "version": twin.version,
    }
    return Row(values, {"id": reverse("console:twin", args=[twin.id])})
