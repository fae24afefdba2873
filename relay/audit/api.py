"""The audit log over REST: list, export and verify."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from django.db.models import QuerySet
from ninja import Field, Query, Router, Schema

from relay.access.errors import NotFound
from relay.audit import chain, listing, services
from relay.audit.models import MAX_ACTION_CHARS, MAX_TARGET_CHARS, AuditEntry
from relay.rest.caller import Request
from relay.rest.lines import EXPORTED, MEDIA_TYPES, lines
from relay.rest.operation import get, post
from relay.rest.paging import page
from relay.rest.schema import Page, PageQuery, RowId, Stamp

router = Router(tags=["audit"])

ORDERS: Final = {"number": "pk"}


class EntryOut(Schema):
    """One change, or one sign-in."""

    number: int
    at: datetime
    actor: str
    face: str = Field(description="Interface of the change: admin, rest, cli or system.")
    address: str
    action: str
    target: str
    before: Any = Field(description="Value before; null: absent.")
    after: Any = Field(description="Value after; null: absent.")
    previous: str = Field(description="Hash of the previous entry.")
    hash: str


class EntryFilter(Schema):
    """Filters of the log."""

    actor: str | None = Field(
        None, max_length=150, description="An account, or one token of it: `account/rmb_<id>`."
    )
    face: Literal["admin", "rest", "cli", "system"] | None = None
    action: str | None = Field(
        None, max_length=MAX_ACTION_CHARS, description="`ban.set`, or all of `ban`."
    )
    target: str | None = Field(None, max_length=MAX_TARGET_CHARS)
    address: str | None = Field(None, max_length=64)
    since: Stamp | None = None
    until: Stamp | None = None


class AuditExportQuery(EntryFilter):
    """Query of an export."""

    form: Literal["jsonl", "csv"] = "jsonl"


class EntryQuery(EntryFilter, PageQuery):
    """Filters of the list."""

    order: Literal["number", "-number"] = "-number"


class Verified(Schema):
    """Result of a check of the whole log."""

    intact: bool
    entries: int = Field(description="Number of entries; 0 if the log is broken.")
    hash: str = Field(description="Hash of the last entry, to store elsewhere.")
    problem: str = Field(description="Place and kind of the damage; empty if the log is intact.")


@get(router, "/audit", action="audit.view", answer=Page[EntryOut])
def list_audit(request: Request, query: Query[EntryQuery]) -> Any:
    """List entries of the audit log: who changed what, and the values before and after."""
    return page(query, _filtered(query), ORDERS)


@get(router, "/audit/export", action="audit.export", answer=None, content=EXPORTED)
def export_audit(request: Request, query: Query[AuditExportQuery]) -> Any:
    """Export the audit log as lines of JSON or CSV, the oldest entry first.

    The export adds an entry of its own.
    """
    rows = _filtered(query).order_by("number")
    found = services.export(rows, query.form, actor=request.actor)
    return lines(found, MEDIA_TYPES[query.form], f"audit.{query.form}")


@post(router, "/audit/verify", action="audit.view", answer=Verified)
def verify_audit(request: Request) -> Any:
    """Check the hash of every entry.

    It checks about ten thousand entries a second; only one check runs at a time.
    """
    try:
        head = services.verify_alone()
    except chain.Broken as broken:
        return Verified(intact=False, entries=0, hash="", problem=str(broken))
    entries = AuditEntry.objects.filter(number__lte=head.number).count()
    return Verified(intact=True, entries=entries, hash=head.hash, problem="")


@get(router, "/audit/{number}", action="audit.view", answer=EntryOut)
def get_audit_entry(request: Request, number: RowId) -> Any:
    """Get an entry of the audit log."""
    found = AuditEntry.objects.filter(pk=number).first()
    if found is None:
        raise NotFound(f"there is no entry {number}")
    return found


def _filtered(query: EntryFilter) -> QuerySet[AuditEntry]:
    rows = listing.search(
        actor=query.actor or "",
        action=query.action or "",
        target=query.target or "",
        face=query.face or "",
        since=query.since,
        until=query.until,
    )
    return rows if query.address is None else rows.filter(address=query.address)
