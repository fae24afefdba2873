"""Pages of the audit log: its entries, the changes in each, exports, and verification."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.http import urlencode

from relay.access import faces
from relay.access.actor import Face
from relay.access.errors import Conflict, Invalid, NotFound
from relay.audit import chain, listing, services
from relay.audit.differences import differences, summary
from relay.audit.models import AuditEntry
from relay.dashboard.acts import posted
from relay.dashboard.pages import may, page, render
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Table, given, respond
from relay.ops import storable
from relay.ops.paging import Page
from relay.ops.wording import duration
from relay.rest.lines import MEDIA_TYPES, lines

FACES: Final = {
    Face.ADMIN: "browser",
    Face.REST: "REST",
    Face.CLI: "command",
    Face.SYSTEM: "relay",
}
COLUMNS: Final = (
    Column("number", "Entry", order="number"),
    Column("at", "When", Cell.MOMENT),
    Column("actor", "Who"),
    Column("face", "By"),
    Column("action", "Did"),
    Column("target", "To", Cell.CODE),
    Column("change", "Change", Cell.CODE, hint="values that differ"),
    Column("address", "From", Cell.CODE, optional=True, hint="address, or host of a command"),
)
FILTERS: Final = (
    Filter("actor", "Who", hint="an account"),
    Filter("action", "Did", hint="ban.set, or ban"),
    Filter("target", "To", hint="complete name or id"),
    Filter("face", "By", [(face.value, text) for face, text in FACES.items()]),
    Filter("since", "Since (UTC)", hint="2026-01-31 or 2 h"),
    Filter("until", "Until (UTC)", hint="2026-01-31 or 2 h"),
)
MAX_VERIFIED: Final = 200_000
"""Maximum number of entries verified by a page; use the command for a longer log."""
VERIFIED_A_SECOND: Final = 10_000
_AGO: Final = re.compile(r"(\d{1,6}) ?(s|min|h|d)")
_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


class HeadForm(forms.Form):
    """An earlier head of the log to compare with."""

    head = forms.CharField(
        label="Head of an earlier check",
        required=False,
        max_length=90,
        help_text="Number and hash of an entry, as an earlier check printed it. Without it, the "
        "check cannot detect entries that were deleted at the end.",
    )

    def clean_head(self) -> list[chain.Head]:
        text = self.cleaned_data["head"]
        try:
            return [chain.Head.parse(text)] if text else []
        except ValueError as error:
            raise forms.ValidationError(f"Not a head of the log: {error}.") from error


@page("audit.view")
def audit(request: HttpRequest) -> HttpResponseBase:
    """List all entries, the latest first."""

    def fetch(ask: Ask) -> Page[Row]:
        found = ask.page(_searched(ask.filters), {"number": "pk"})
        return Page([_row(each) for each in found.items], found.next)

    chosen = {each.name: given(request, each.name) for each in FILTERS}
    exports = []
    if may(request, "audit.export"):
        exports = [(form.upper(), _export_url(form, chosen)) for form in listing.FORMS]
    table = Table(
        request, "audit", COLUMNS, fetch, order="-number", filters=FILTERS, live=True,
        empty="No changes yet.", exports=exports,
    )  # fmt: skip
    check = Action("Check the log", reverse("console:audit_verify"), asks=False)
    return respond(request, table, "relay_dashboard/table_page.html", "Audit", {"actions": [check]})


@page("audit.view")
def entry(request: HttpRequest, number: int) -> HttpResponseBase:
    """Show one entry, with every field before and after the change."""
    found = AuditEntry.objects.filter(pk=number).first() if number < 1 << 63 else None
    if found is None:
        raise NotFound(f"there is no entry {number}")
    beside = AuditEntry.objects.filter(number__in=(number - 1, number + 1))
    numbers = set(beside.values_list("number", flat=True))
    context = {
        "entry": found,
        "by": FACES.get(Face(found.face), found.face),
        "fields": differences(found.before, found.after),
        "earlier": number - 1 if number - 1 in numbers else None,
        "later": number + 1 if number + 1 in numbers else None,
    }
    return render(request, "relay_dashboard/audit_entry.html", f"Entry {number}", context)


@page("audit.export")
def export(request: HttpRequest, form: str) -> HttpResponseBase:
    """Send the matching entries, the oldest first; the export adds an entry of its own."""
    if form not in listing.FORMS:
        raise NotFound(f"the log is exported as {' or '.join(listing.FORMS)}")
    rows = _searched({each.name: given(request, each.name) for each in FILTERS})
    found = services.export(rows.order_by("number"), form, actor=faces.operator(request))
    return lines(found, MEDIA_TYPES[form], f"audit.{form}")


@page("audit.view")
def verify(request: HttpRequest) -> HttpResponseBase:
    """Verify the hash of every entry, and show the result."""
    form = HeadForm(posted(request))
    entries = AuditEntry.objects.count()
    context: dict[str, Any] = {
        "form": form,
        "entries": entries,
        "takes": duration(max(1.0, entries / VERIFIED_A_SECOND)),
        "too_many": entries > MAX_VERIFIED,
        "most": MAX_VERIFIED,
    }
    if request.method == "POST" and form.is_valid():
        if entries > MAX_VERIFIED:
            raise Conflict(f"there are more than {MAX_VERIFIED:,} entries: use rmb_audit verify")
        try:
            context["head"] = services.verify_alone(form.cleaned_data["head"])
        except chain.Broken as broken:
            context["broken"] = broken
    return render(request, "relay_dashboard/audit_verify.html", "Check the audit log", context)


def time_of(name: str, text: str) -> datetime | None:
    """Return the time in a filter: a date, a date and time, or an age; None if it is empty.

    Raises:
        Invalid: the text has another value.
    """
    if not text:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return timezone.now() - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
        found = parse_datetime(text if len(text) > len("2026-01-31") else f"{text} 00:00")
    except (ValueError, OverflowError):  # before the year 1
        found = None
    if found is None or not storable.is_within_reach(found):
        raise Invalid(
            fields={name: "must be a time such as 2026-01-31 14:00 (UTC), or an age such as 2 h"}
        )
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _searched(chosen: Mapping[str, str]) -> QuerySet[AuditEntry]:
    return listing.search(
        actor=chosen["actor"],
        action=chosen["action"],
        target=chosen["target"],
        face=chosen["face"],
        since=time_of("since", chosen["since"]),
        until=time_of("until", chosen["until"]),
    )


def _export_url(form: str, chosen: Mapping[str, str]) -> str:
    query = {name: value for name, value in chosen.items() if value}
    return f"{reverse('console:audit_export', args=[form])}?{urlencode(query)}"


def _row(found: AuditEntry) -> Row:
    values = {
        "number": found.number,
        "at": found.at,
        "actor": found.actor,
        "face": FACES.get(Face(found.face), found.face),
        "action": found.action,
        "target": found.target,
        "change": summary(found.before, found.after),
        "address": found.address,
    }
    link = reverse("console:audit_entry", args=[found.number])
    return Row(values, {"number": link, "action": link})
