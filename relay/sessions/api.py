"""Sessions over REST: the history, and ending those that are open."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from ninja import Field, Query, Router, Schema

from relay.access.errors import NotFound
from relay.rest.caller import Request
from relay.rest.operation import get
from relay.rest.paging import page
from relay.rest.schema import Page, PageQuery, RowId, TwinId
from relay.sessions.models import MAX_REMOTE_CHARS, Session

router = Router(tags=["sessions"])

ORDERS: Final = {"id": "pk", "opened_at": "opened_at", "twin": "twin", "drops": "drops"}


class SessionOut(Schema):
    """One connection of a twin, from its claim to its end."""

    id: int
    key: str = Field(alias="key_text", description="`<twin>` or `<twin>:<session id>`.")
    twin: int
    sid: str | None = Field(description="Session id; null is none, which is not an empty one.")
    epoch: int = Field(description="Order of the connections of one session.")
    worker: str = Field(description="Boot id of the worker.")
    slot: str
    remote: str = Field(description="Address of the client.")
    user_agent: str
    opened_at: datetime
    closed_at: datetime | None
    close_reason: str
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    backlog: int
    drops: int

    @staticmethod
    def resolve_sid(session: Session) -> str | None:
        return session.key[1]


class SessionQuery(PageQuery):
    """Filters of the history."""

    twin: TwinId | None = None
    open: Literal["true", "false"] | None = Field(
        None, description="Only sessions that are open, or only those that ended."
    )
    worker: str | None = Field(None, max_length=64)
    remote: str | None = Field(None, max_length=MAX_REMOTE_CHARS)
    close_reason: str | None = Field(None, max_length=32)
    order: Literal["id", "-id", "opened_at", "-opened_at", "twin", "-twin", "drops", "-drops"] = (
        "-opened_at"
    )


@get(router, "/sessions", action="session.view", answer=Page[SessionOut])
def list_sessions(request: Request, query: Query[SessionQuery]) -> Any:
    """Sessions in the history.

    Open ones among them; a row is up to some seconds behind the live directory.
    """
    rows = Session.objects.all()
    for name in ("twin", "worker", "remote", "close_reason"):
        value = getattr(query, name)
        if value is not None:
            rows = rows.filter(**{name: value})
    if query.open is not None:
        rows = rows.filter(closed_at__isnull=query.open == "true")
    return page(query, rows, ORDERS)


@get(router, "/sessions/{session}", action="session.view", answer=SessionOut)
def get_session(request: Request, session: RowId) -> Any:
    """One session of the history."""
    found = Session.objects.filter(pk=session).first()
    if found is None:
        raise NotFound(f"there is no session {session}")
    return found
