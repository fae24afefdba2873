"""Limits and bans of twins over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from ninja import Field, Query, Router, Schema

from relay.access.errors import NotFound
from relay.audit import services as audit
from relay.limits import services
from relay.limits.models import MAX_NOTE_CHARS, MAX_REASON_CHARS, TwinLimit
from relay.rest import etag
from relay.rest.caller import Request
from relay.rest.operation import delete, get, post, put
from relay.rest.paging import page
from relay.rest.schema import Body, Count, Page, PageQuery, Stamp, TwinId

router = Router(tags=["limits"])

ORDERS: Final = {"twin": "pk", "updated": "updated"}


class LimitOut(Schema):
    """What is decided about one twin."""

    twin: int
    count: int | None = Field(description="Messages a minute; null: the relay's limit.")
    size: int | None = Field(description="Bytes a minute, and of one message.")
    banned: bool
    ban_reason: str
    banned_until: datetime | None = Field(description="The ban is lifted then; null: never.")
    note: str
    updated: datetime


class LimitIn(Body):
    """Limits in place of the relay's: 0 and 0 is none at all, null and null is the relay's."""

    count: Count | None = None
    size: Count | None = None
    note: str = Field("", max_length=MAX_NOTE_CHARS)


class BanIn(Body):
    """A ban."""

    reason: str = Field("", max_length=MAX_REASON_CHARS)
    until: Stamp | None = Field(None, description="When it is lifted; null: never.")


class LimitQuery(PageQuery):
    """Filters of the list."""

    banned: Literal["true", "false"] | None = None
    order: Literal["twin", "-twin", "updated", "-updated"] = "twin"


@get(router, "/limits", action="limit.view", answer=Page[LimitOut])
def list_limits(request: Request, query: Query[LimitQuery]) -> Any:
    """Twins with limits of their own, a ban or a note."""
    rows = TwinLimit.objects.all()
    if query.banned is not None:
        rows = rows.filter(banned=query.banned == "true")
    return page(query, rows, ORDERS)


@get(router, "/limits/{twin}", action="limit.view", answer=LimitOut, tagged=True)
def get_limit(request: Request, twin: TwinId) -> Any:
    """What is decided about a twin."""
    return _out(_row(twin))


@put(router, "/limits/{twin}", action="limit.set", answer=LimitOut, tagged=True)
def put_limit(request: Request, twin: TwinId, body: LimitIn) -> Any:
    """Give a twin limits of its own.

    They hold within a second. A ban stays as it is.
    """
    with audit.exclusive():
        limit = TwinLimit.objects.filter(twin=twin).first()
        if limit is None:
            etag.check_absent(request)
            limit = TwinLimit(twin=twin)
        else:
            etag.check_match(request, _out(limit))
        limit.count, limit.size, limit.note = body.count, body.size, body.note
        services.save(limit, actor=request.actor)
    return _out(limit)


@delete(router, "/limits/{twin}", action="limit.remove", answer=None, status=204, tagged=True)
def delete_limit(request: Request, twin: TwinId) -> Any:
    """Forget what was decided about a twin.

    The relay's limit holds for it, and a ban is lifted.
    """
    with audit.exclusive():
        etag.check_match(request, _out(_row(twin)))
        services.remove([twin], actor=request.actor)


@post(router, "/limits/{twin}/ban", action="ban.set", answer=LimitOut)
def ban_twin(request: Request, twin: TwinId, body: BanIn) -> Any:
    """Ban a twin.

    Its sessions are closed within a second; new ones and its mail are refused.
    """
    services.ban(twin, body.reason, body.until, actor=request.actor)
    return _out(_row(twin))


@post(router, "/limits/{twin}/lift-ban", action="ban.lift", answer=LimitOut)
def lift_ban(request: Request, twin: TwinId) -> Any:
    """Let a banned twin in again."""
    _row(twin)
    services.lift_ban(twin, actor=request.actor)
    return _out(_row(twin))


def _row(twin: int) -> TwinLimit:
    found = TwinLimit.objects.filter(twin=twin).first()
    if found is None:
        raise NotFound(f"nothing is decided about twin {twin}")
    return found


def _out(limit: TwinLimit) -> LimitOut:
    return LimitOut.model_validate(limit, from_attributes=True)
