"""Handover of events from the loop of a worker to the process that packs them.

Packing the rows of a message in the worker would cost a tenth of the time that the message takes.
The rows need only what is in the bytes that go to Redis anyway. So a worker that records has a
child process (`relay.analytics.packer`): the worker copies the bytes of each committed batch into a
ring of shared memory, and the child parses them again and writes segments of its own. Of a message,
only the values of its rows leave the child.

    COMMITTED   a batch as it went to Redis: number of messages, time, and time since it began to
                fill; before the batch, the numbers (u32) of those `more` messages that were not
                written to a socket
    UNWRITTEN   messages of the last batch that did not fit into their socket after all

The worker packs a batch itself if the ring is full or the child has ended, so nothing is lost. A
killed child is replaced, and the next one continues with the contents of the ring; a gap records
the rows that the dead one had packed but not written, as for a killed worker. If the worker is
killed, its child writes all that it was given.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import time
from array import array
from typing import TYPE_CHECKING, Any, Final

from redispipe import resp
from relay.analytics.journal import FIGURES
from relay.analytics.packing import ROWS_OF_ONE
from relay.analytics.ring import DATA_BYTES, Ring, create
from relay.server.child import child_environment, module_command

if TYPE_CHECKING:
    from relay.queues.batch import Batch

COMMITTED: Final = 1
UNWRITTEN: Final = 2

SPARE: Final = 3
"""A batch is put into the ring only if this many times its size is free behind it. So there is room
for a later record about the batch, even if the end of the ring wastes space."""
LEAST_BYTES: Final = 64
"""Minimum size of a message in the ring; the command that stores it has 48 without the payload."""
MOST_ROWS: Final = DATA_BYTES // LEAST_BYTES * ROWS_OF_ONE
"""Maximum rows of all messages in the ring; lost if both worker and child are killed."""
TICK_S: Final = 0.01
"""Seconds between two publications of records to the child, while there are any."""
RESTART_S: Final = 5.0
"""Seconds until another child is started, because what killed one may kill the next."""
CLOSE_S: Final = 6.0
"""Seconds to wait for the child at the end; longer than `relay.analytics.writer.CLOSE_S`."""

IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that the child ignores: a service manager sends them to all processes, and the worker may
continue for as long as it drains."""

_MODULE: Final = "relay.analytics.packer"

log = logging.getLogger(__name__)


class Handover:
    """The worker's side of the handover."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """
        Args:
            settings: settings of the child; see `relay.analytics.packer.Settings`.
        """
        self._settings = settings
        self._ring: Ring | None = None
        self._memory = self._wake = -1  # file descriptors
        self._child: subprocess.Popen[bytes] | None = None
        self._former = [0] * FIGURES  # figures of earlier children
        self._open = False
        self._timer: asyncio.TimerHandle | None = None
        self._restart: asyncio.TimerHandle | None = None  # set while there is no child

    @property
    def pid(self) -> int | None:
        """Process id of the child."""
        return self._child.pid if self._child is not None else None

    @property
    def waiting_bytes(self) -> int:
        """Bytes in the ring that the child has not taken."""
        return self._ring.waiting_bytes if self._ring is not None else 0

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the child; if it cannot be started, the worker packs all events itself."""
        try:
            self._memory = create()
            self._ring = Ring(self._memory)
            self._start_child()
            self._open = True
        except (OSError, AttributeError) as error:
            log.warning("the worker packs events itself, no process can: %s", error)

    async def close(self) -> None:
        """Close the handover, and wait until the child has written all it was given."""
        self._open = False
        for timer in (self._timer, self._restart):
            if timer is not None:
                timer.cancel()
        ring, child = self._ring, self._child
        if ring is not None:
            ring.publish()
            ring.publish()
            if child is not None:
                await asyncio.to_thread(self._end_child, ring)
            self._former, self._ring = self.counts(), None
            ring.close()
        if self._memory != -1:
            os.close(self._memory)
            self._memory = -1

    def _start_child(self) -> None:
        theirs, ours = os.pipe()
        settings = {**self._settings, "memory": self._memory, "wake": theirs}
        # Blocked until the child ignores them itself: a signal during its start would end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            os.set_blocking(ours, False)
            self._child = subprocess.Popen(
                module_command(_MODULE, [json.dumps(settings)]),
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                pass_fds=(self._memory, theirs),
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(theirs)
        self._wake = ours

    def _end_child(self, ring: Ring) -> None:
        deadline = time.monotonic() + CLOSE_S
        self._await_child(deadline)
        if ring.waiting_bytes:  # the child was killed: another one writes the rest
            try:
                self._replace_child(ring)
                self._await_child(deadline)
            except OSError as error:
                log.error("no process that packs events can be started: %s", error)
        if ring.waiting_bytes:
            log.error("events were not packed: %d bytes of messages", ring.waiting_bytes)

    def _await_child(self, deadline: float) -> None:
        """Wait until the child has ended, and kill it after the deadline."""
        self._let_go()
        child = self._child
        assert child is not None
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.error("the process that packs events does not end, some may be lost")
            child.kill()
            child.wait()

    def _let_go(self) -> None:
        """Close this end of the pipe to the child, which then finishes its work and ends."""
        if self._wake != -1:
            os.close(self._wake)
            self._wake = -1

    def _lost(self) -> None:
        """Schedule the start of another child after the child has ended."""
        self._let_go()
        self._restart = asyncio.get_running_loop().call_later(RESTART_S, self._start_again)

    def _start_again(self) -> None:
        self._restart = None
        assert self._ring is not None
        try:
            self._replace_child(self._ring)
        except OSError as error:
            log.error("no process that packs events can be started: %s", error)
            self._lost()

    def _replace_child(self, ring: Ring) -> None:
        assert self._child is not None
        code = self._child.wait()  # returns at once: its end of the pipe was closed some time ago
        log.error("the process that packs events ended with %d, another is started", code)
        self._former = self.counts()
        ring.tell([0] * FIGURES)
        self._start_child()

    # --- events -------------------------------------------------------------------------------

    def committed(self, batch: Batch, now_us: int, latency_us: int, waiting: list[int]) -> bool:
        """Hand a batch over to the child if there is room.

        Args:
            batch: batch whose messages all came from sessions here, and that Redis stored as a
                whole.
            now_us: current time, in microseconds since 1970.
            latency_us: time since the first message of the batch arrived, in microseconds.
            waiting: numbers of its messages that were not written to a socket.

        Returns:
            Whether it was handed over; otherwise the caller must pack it.
        """
        data = batch.encoded
        if not self._open or type(data) is not bytes:
            return False
        assert self._ring is not None
        if waiting:
            data = array("I", waiting).tobytes() + data
        spare_bytes, messages = SPARE * len(data), len(batch.items)
        if not self._ring.put(
            COMMITTED, data, messages, len(waiting), now_us, latency_us, spare_bytes
        ):
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._show)
        return True

    def unwritten(self, payloads: list[bytes]) -> None:
        """Record that messages of the last batch handed over were not written after all."""
        if not self._open:
            return
        assert self._ring is not None
        if not self._ring.put(UNWRITTEN, resp.command(*payloads), len(payloads)):
            log.error("events of %d messages count as delivered twice", len(payloads))

    def counts(self) -> list[int]:
        """Return the same figures as `Journal.counts`, of all children together."""
        told = self._ring.told(FIGURES) if self._ring is not None else [0] * FIGURES
        return [sum(pair) for pair in zip(self._former, told, strict=True)]

    def _show(self) -> None:
        """Publish the records in the ring, and wake the child."""
        self._timer = None
        if self._ring is None:
            return
        if self._ring.publish():
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._show)
        if self._wake == -1:
            return
        try:
            os.write(self._wake, b"\0")
        except BlockingIOError:
            pass  # the pipe is full: the child is awake
        except OSError:
            self._lost()
