"""The options of a worker, and the interfaces that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from proto.limits.window import Limit
from proto.rmb.bounds import DEFAULT_BOUNDS, Bounds
from proto.rmb.reasons import SessionReason
from relay.federation.outbox import OutboxBounds
from relay.queues.batch import QueuePolicy
from relay.twins.batches import Flight
from relay.twins.cache import Missing
from relay.twins.source import TwinRecord

if TYPE_CHECKING:
    from relay.sessions.session import Session


class Twins(Protocol):
    """The twin cache, as far as a worker needs it."""

    generation: int

    def get(self, twin: int) -> Any: ...

    def doubts(self, twin: int) -> bool: ...

    async def look_near(self, twin: int) -> TwinRecord | Missing | None: ...

    async def look_up(self, twin: int) -> TwinRecord | None: ...

    def flight(self, twin: int) -> Flight | None: ...

    def invalidate(self, ids: Any) -> None: ...


class History(Protocol):
    """The database's record of sessions, as far as a worker needs it; no method blocks."""

    def opened(self, session: Session) -> None: ...

    def closed(self, session: Session, reason: SessionReason) -> None: ...

    def progress(self, sessions: Iterable[Session]) -> None: ...


class SessionBounds(NamedTuple):
    """The bounds of one session."""

    session_messages: int = 256
    session_bytes: int = 1 << 20
    back_pressure_s: float = 60.0
    idle_timeout_s: float = 120.0


class WorkerOptions(NamedTuple):
    """The options of a worker."""

    boot_id: str
    domains: frozenset[str]
    slot: str = "0"
    host: str = ""
    pid: int = 0
    capacity: int = 500_000
    drain_s: float = 5.0
    queue: QueuePolicy = QueuePolicy()
    outbox: OutboxBounds = OutboxBounds()
    bounds: SessionBounds = SessionBounds()
    envelope_bounds: Bounds = DEFAULT_BOUNDS
    limit: Limit = Limit()
