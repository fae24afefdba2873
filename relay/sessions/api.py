"""The number of open sessions over REST; the rest is declared in `relay.sessions.resources`."""

from __future__ import annotations

from typing import Any, Literal

from ninja import Query, Router, Schema

from relay.rest.caller import Request
from relay.rest.operation import get
from relay.sessions import listing

router = Router(tags=["sessions"])

Protocol = Literal["rmb", "sbd"]
"""Protocols of sessions, from `models.PROTOCOLS`."""


class TotalQuery(Schema):
    """Which sessions are counted."""

    protocol: Protocol | None = None


class TotalOut(Schema):
    """Number of open sessions."""

    total: int


@get(router, "/sessions/total", action="session.view", answer=TotalOut)
def count_sessions(request: Request, query: Query[TotalQuery]) -> Any:
    """Count the open sessions of RMB and SBD."""
    return TotalOut(total=listing.total(query.protocol or ""))
