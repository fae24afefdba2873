"""Revalidation of open sessions when twins change.

A session requires that its twin exists, has the account that signed in, and lists this relay unless
the session is a guest's.

    notification of changed twins, or of missed ones: all -> `changed` -> look-ups -> `Worker.end`

A session whose twin lost one of these ends within a second, as by a ban. Its client may sign in
under the present conditions: as a guest, if the twin is now on other relays. While the source of
twins does not answer, the last known twins count, and are looked up again. A guest whose twin lists
this relay now becomes a member.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from proto.rmb.reasons import SessionReason
from relay.twins.cache import TwinLookupError
from relay.twins.source import TwinRecord

if TYPE_CHECKING:
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

PART: Final = 256
"""Number of twins looked up together, in one fetch of the cache."""
AGAIN_S: Final = 10.0
"""Seconds until twins are looked up again for which the source did not answer."""


class Rights:
    """The sessions of one worker whose twins may have changed."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._due: set[int] = set()
        self._doubtful: set[int] = set()  # looked up while the source did not answer
        self._checking = self._waiting = False

    def changed(self, twins: Iterable[int] | None) -> None:
        """Check the sessions of twins that may have changed; None for all."""
        if twins is None:
            twins = [session.destination.key[0] for session in self._worker.sessions]
        self._due.update(twins)
        if self._due and not self._checking:
            self._checking = True
            self._worker.spawn(self._check())

    async def _check(self) -> None:
        worker = self._worker
        try:
            while self._due:
                due, self._due = [twin for twin in self._due if worker.meters.knows(twin)], set()
                held: dict[int, list[Session]] = defaultdict(list)
                for session in worker.sessions if due else ():
                    held[session.destination.key[0]].append(session)
                for first in range(0, len(due), PART):
                    part = due[first : first + PART]
                    await asyncio.gather(*(self._judge(twin, held[twin]) for twin in part))
        finally:
            self._checking = False
        if self._doubtful and not self._waiting:
            self._waiting = True
            worker.spawn(self._look_again())

    async def _judge(self, twin: int, sessions: list[Session]) -> None:
        worker = self._worker
        try:
            record = await worker.twins.look_up(twin)
        except TwinLookupError:
            self._doubtful.add(twin)
            return
        if worker.twins.doubts(twin):
            self._doubtful.add(twin)
        for session in sessions:
            if session.end_reason is None:
                self._apply(session, record)

    def _apply(self, session: Session, record: TwinRecord | None) -> None:
        worker = self._worker
        here = record is not None and not worker.domains.isdisjoint(record.relays)
        if (
            record is None
            or record.account != worker.sessions[session]
            or not (here or session.guest)
        ):
            worker.end(session, SessionReason.TWIN_CHANGED)
        elif here and session.guest:
            worker.guests.at_home(session)

    async def _look_again(self) -> None:
        await asyncio.sleep(AGAIN_S)
        self._waiting = False
        doubtful, self._doubtful = self._doubtful, set()
        self.changed(doubtful)
