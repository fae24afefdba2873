"""Operations on the chain, for operators: its state, its events, and the import of all twins."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, NamedTuple

from django.conf import settings
from django.db import InterfaceError, OperationalError
from redis.exceptions import RedisError

from chain.urls import shown
from relay.access.actor import Actor
from relay.access.errors import Away, Conflict, Invalid
from relay.audit import services as audit
from relay.ops import background, paging
from relay.ops.paging import Page
from relay.ops.redis_client import client
from relay.queues import headers
from relay.twins import chain_events, chain_import, chain_state
from relay.twins.chain_events import Event
from relay.twins.models import Twin

_EVENTS: Final = "events"


@dataclass(frozen=True, slots=True)
class ImportStatus:
    """State of the import of all twins.

    Attributes:
        state: `never`, `wanted` (not begun), `running`, `waiting` (to continue) or `done`.
        twins: number of twins read so far, or in all.
        newest_id: highest id of a twin when it began.
        began, ended: unix times, 0 for not yet.
        error: why it does not continue.
    """

    state: str
    twins: int
    newest_id: int
    height: int
    began: float
    ended: float
    error: str


@dataclass(frozen=True, slots=True)
class ChainStatus:
    """State of following the chain.

    Attributes:
        used: whether the relay reads twins from the chain.
        following: whether following works; if not, `complaint` has the reason.
        url: node that is followed; `nodes` are all configured nodes.
        by: host/pid of the follower; `leased` is whether it runs.
        height: block up to which all changes are known; None before the first.
        lag_blocks: number of blocks that are announced and not processed yet.
        head_age_s: seconds since the newest block; None before the first.
        mirrored: number of twins of the chain in the table of this site.
    """

    used: bool
    following: bool
    complaint: str
    url: str
    nodes: list[str]
    by: str
    leased: bool
    height: int | None
    head_height: int
    lag_blocks: int
    head_age_s: float | None
    counts: dict[str, int]
    mirrored: int
    imported: ImportStatus


class Told(NamedTuple):
    """An event of the chain, and its twin as it is in the mirror now; None if it is not there."""

    event: Event
    twin: Twin | None


def status() -> ChainStatus:
    """Return the state of following the chain.

    Raises:
        Away: Redis does not answer.
    """
    now = time.time()
    try:
        following, imported = chain_state.read(client())
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    complaint = following.complaint(now)
    return ChainStatus(
        used=settings.RMB.twins.source == "tfchain",
        following=not complaint,
        complaint=complaint,
        url=following.url,
        nodes=[shown(each) for each in settings.RMB.substrate.urls],
        by=following.by,
        leased=following.leased,
        height=following.tip.height if following.tip else None,
        head_height=following.head_height,
        lag_blocks=following.lag_blocks,
        head_age_s=round(now - following.head_at, 1) if following.head_at else None,
        counts=dict(following.counts),
        mirrored=Twin.objects.filter(source=Twin.Source.CHAIN).count(),
        imported=ImportStatus(
            state=_state(imported),
            twins=imported.twins,
            newest_id=imported.newest_id,
            height=imported.height,
            began=imported.began,
            ended=imported.ended,
            error=imported.error,
        ),
    )


def list_events(*, limit: int = 100, cursor: str = "") -> Page[Told]:
    """List the events of the chain, the newest first; about a thousand are kept.

    Raises:
        Invalid: the cursor does not belong to this list.
        Away: Redis or the database does not answer.
    """
    wanted = paging.bounded(limit)
    before = ""
    if cursor:
        (before,) = paging.decode(cursor, _EVENTS, str)
        if not headers.is_entry(before):
            raise Invalid(fields={"cursor": "is not a cursor of this list"})
    try:
        found = chain_events.latest(client(), wanted + 1, before)
        rows = Twin.objects.in_bulk([event.twin for event in found if event.twin])
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error
    shown = found[:wanted]
    more = paging.encode(_EVENTS, shown[-1].entry) if len(found) > wanted else ""
    return Page([Told(event, rows.get(event.twin)) for event in shown], more)


def want_import(*, actor: Actor) -> ImportStatus:
    """Request an import of all twins; one that is already requested or running continues.

    Returns:
        State of the import before.

    Raises:
        Denied, Away
    """
    before = status()
    with audit.change(actor, "chain.import", target=before.imported.height) as change:
        change.before = {"state": before.imported.state, "twins": before.imported.twins}
        if before.imported.state in ("never", "done"):
            chain_import.want()
    return before.imported


def start_import(*, actor: Actor) -> None:
    """Request an import as `want_import` does, and start it in a Celery worker. `status` returns
    its progress.

    Raises:
        Denied, Away
        Conflict: twins do not come from the chain, or too many tasks wait.
    """
    if settings.RMB.twins.source != "tfchain":
        raise Conflict("twins come from the registry: there is nothing to import")
    want_import(actor=actor)
    try:
        background.hand_over(chain_import.TASK)
    except background.NotStartedError as error:
        raise Conflict(
            f"the import is wanted, but could not be started now: {error}; the schedule will"
        ) from error


def _state(imported: chain_state.Import) -> str:
    if imported.running:
        return "running" if imported.leased else "waiting"
    if imported.needed:
        return "wanted"
    return "done" if imported.ended else "never"
