"""Recording of the events of a worker: its recorder, its journal, and the process that packs.

Imported only if `analytics.record` is on.
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
    """Recording of the events of one worker; started and closed separately from it.

    Attributes:
        sbd: recorder for the worker's SBD server, if it has one.
    """

    def __init__(self, config: Any, worker: Worker, name: str) -> None:
        """
        Args:
            config: settings of the relay.
            worker: worker whose events are recorded.
            name: name of the worker among the processes of the relay.
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
        """Start the journal and the process that packs."""
        self._journal.start()
        self._handover.start()

    async def close(self) -> None:
        """Stop recording, and wait until all events are written."""
        await asyncio.gather(self._handover.close(), self._journal.close())

    def figures(self) -> dict[str, float]:
        """Return the figures for the metrics."""
        both = zip(self._journal.counts(), self._handover.counts(), strict=True)
        return as_figures([sum(pair) for pair in both])
