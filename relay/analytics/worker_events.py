"""What records the events of a worker: its recorder, its journal, and the process that packs.

Imported only where `analytics.record` is on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django.conf import settings

from relay.analytics import places
from relay.analytics.handover import MOST_ROWS, Handover
from relay.analytics.journal import as_figures
from relay.analytics.losses import packer_of
from relay.analytics.recorder import EventRecorder
from relay.analytics.recording import journal, relay_name, rhythm_of
from relay.analytics.sbd_events import SbdEvents

if TYPE_CHECKING:
    from relay.sessions.worker import Worker


class WorkerEvents:
    """Records the events of one worker from now on; has a life of its own.

    Attributes:
        sbd: what the worker's SBD server, if it has one, is to tell its events.
    """

    def __init__(self, config: Any, worker: Worker, name: str) -> None:
        """
        Args:
            config: the settings.
            worker: that is recorded.
            name: of this worker among the processes of the relay.
        """
        self._journal = journal(config, name, worker.wall_s, MOST_ROWS)
        self._handover = Handover(
            {
                "root": str(places.configured().root),
                "relay": relay_name(config),
                "worker": packer_of(name),
                "fsync": config.analytics.fsync,
                "rhythm": rhythm_of(config),
                "log": settings.LOGGING,
            }
        )
        worker.record(EventRecorder(worker, self._journal, self._handover))
        self.sbd = SbdEvents(worker.boot_id, self._journal)

    def start(self) -> None:
        """Begins to write."""
        self._journal.start()
        self._handover.start()

    async def close(self) -> None:
        """Returns when all is written."""
        await asyncio.gather(self._handover.close(), self._journal.close())

    def figures(self) -> dict[str, float]:
        """Figures for the metrics."""
        both = zip(self._journal.counts(), self._handover.counts(), strict=True)
        return as_figures([sum(pair) for pair in both])
