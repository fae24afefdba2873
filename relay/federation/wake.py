"""Starting the task that drains a shard of the outbox, from a relay worker.

A worker that put a message into a shard nobody drains has the task started here, in a thread:
talking to Celery's broker blocks, and importing Celery takes most of a second, which a worker that
never federates does not spend at all. A start that does not work is not lost: the beat starts
every shard that has messages and no drainer.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from relay.ops import background
from relay.queues import keys

log = logging.getLogger(__name__)

START_S: Final = 1.0
"""At most one start per shard in this time: a task needs about so long to take its lease."""
TASK: Final = "federation.deliver"
JOIN_S: Final = 2.0
"""How long a stop waits for a start that is under way; the thread ends with the process."""


def start_task(shard: int) -> None:
    """Puts the task of one shard into its queue. Blocks, and imports Celery."""
    background.hand_over(TASK, shard)


class Starter:
    """Starts tasks for one worker, in one thread that is there once it is needed.

    Attributes:
        failures: starts that did not work.
    """

    def __init__(
        self,
        start: Callable[[int], None] = start_task,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = 0
        self._start = start
        self._clock = clock
        self._again_at: dict[int, float] = {}  # shard -> when it may be started again
        self._waiting: queue.Queue[int | None] = queue.Queue(keys.OUTBOX_SHARDS + 1)
        self._thread: threading.Thread | None = None
        self._failing = False

    def wake(self, shard: int) -> None:
        """Has the task of a shard started; called on the loop, does not wait."""
        now = self._clock()
        if now < self._again_at.get(shard, now):
            return
        self._again_at[shard] = now + START_S
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="federation-wake", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(shard)
        except queue.Full:
            self.failures += 1  # the broker does not answer; the beat starts it when it does

    def stop(self) -> None:
        """Ends the thread; blocks for a moment if it is at work."""
        if self._thread is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while (shard := self._waiting.get()) is not None:
            try:
                self._start(shard)
            except Exception as error:
                self.failures += 1
                if not self._failing:
                    log.warning("task of federation shard %d cannot be started: %s", shard, error)
                self._failing = True
            else:
                self._failing = False
