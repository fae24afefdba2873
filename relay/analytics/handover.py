"""From the loop of a worker to the process that packs its events (`relay.analytics.packer`).

Making rows of a message takes a worker a tenth of what the message takes it. What the rows need is
in the bytes that went to Redis anyway: so a worker that records has a child, puts the bytes of each
committed batch into a ring of shared memory, and the child parses them again and writes segments of
its own. Nothing of a message but what rows have leaves the child.

    COMMITTED   a batch as it went to Redis: how many messages, when, how long after it began to
                fill; before it the numbers (u32) of those `more` that were not written to a socket
    UNWRITTEN   messages of that batch that did not fit into their socket after all

The worker packs a batch itself when the ring is full, or the child is gone: nothing is lost then. A
child that is killed is replaced, and the next one goes on with what is in the ring; what the dead
one had packed and not written is told as a gap, as that of a killed worker. The child of a worker
that is killed writes what it was given.
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
"""A batch is put in where there is room for so many times its size, so that there is for what
follows about it, however the ring's end cuts that."""
LEAST_BYTES: Final = 64
"""Of a message in the ring: the command that stores it has 48 without the payload."""
MOST_ROWS: Final = DATA_BYTES // LEAST_BYTES * ROWS_OF_ONE
"""Of all messages the ring can hold: a worker that is killed with its child loses them."""
TICK_S: Final = 0.01
"""How often the child is shown what was put in."""
RESTART_S: Final = 5.0
"""Pause before another child is started: what killed one may kill the next."""
CLOSE_S: Final = 6.0
"""How long the end waits for the child; more than the writer of segments does for the disk."""

IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""By the child: a service manager sends them to all processes, and the worker may go on for as long
as it drains."""

_MODULE: Final = "relay.analytics.packer"

log = logging.getLogger(__name__)


class Handover:
    """A worker's end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """
        Args:
            settings: what the child is told, see `relay.analytics.packer.Settings`.
        """
        self._settings = settings
        self._ring: Ring | None = None
        self._memory = self._wake = -1  # files
        self._child: subprocess.Popen[bytes] | None = None
        self._former = [0] * FIGURES  # what children before it told
        self._open = False
        self._timer: asyncio.TimerHandle | None = None
        self._restart: asyncio.TimerHandle | None = None  # runs while there is no child

    @property
    def pid(self) -> int | None:
        """The child's."""
        return self._child.pid if self._child is not None else None

    @property
    def waiting_bytes(self) -> int:
        """What the child has not taken."""
        return self._ring.waiting_bytes if self._ring is not None else 0

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the child; without one the worker packs all itself."""
        try:
            self._memory = create()
            self._ring = Ring(self._memory)
            self._start_child()
            self._open = True
        except (OSError, AttributeError) as error:
            log.warning("the worker packs events itself, no process can: %s", error)

    async def close(self) -> None:
        """Returns when the child has written all it was given."""
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
        # Until it ignores them itself: it would die of one that comes while it starts.
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
        if ring.waiting_bytes:  # it had been killed: another one writes the rest
            try:
                self._replace_child(ring)
                self._await_child(deadline)
            except OSError as error:
                log.error("no process that packs events can be started: %s", error)
        if ring.waiting_bytes:
            log.error("events were not packed: %d bytes of messages", ring.waiting_bytes)

    def _await_child(self, deadline: float) -> None:
        """Waits until it is at its end, or ends it."""
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
        """Closes the end of the pipe whose other end the child has: it then comes to its end."""
        if self._wake != -1:
            os.close(self._wake)
            self._wake = -1

    def _lost(self) -> None:
        """There is no child."""
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
        code = self._child.wait()  # at once: its end of the pipe was closed some time ago
        log.error("the process that packs events ended with %d, another is started", code)
        self._former = self.counts()
        ring.tell([0] * FIGURES)
        self._start_child()

    # --- events -------------------------------------------------------------------------------

    def committed(self, batch: Batch, now_us: int, latency_us: int, waiting: list[int]) -> bool:
        """Hands a batch over, if there is room.

        Args:
            batch: that all came from sessions here, and that Redis took as a whole.
            now_us: unix time.
            latency_us: since its first message came.
            waiting: numbers of those of its messages that were not written.

        Returns:
            Whether it was taken; otherwise the caller sees to it.
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
        """Takes back that messages of the batch that was taken last were written."""
        if not self._open:
            return
        assert self._ring is not None
        if not self._ring.put(UNWRITTEN, resp.command(*payloads), len(payloads)):
            log.error("events of %d messages count as delivered twice", len(payloads))

    def counts(self) -> list[int]:
        """As `Journal.counts`, of all children."""
        told = self._ring.told(FIGURES) if self._ring is not None else [0] * FIGURES
        return [sum(pair) for pair in zip(self._former, told, strict=True)]

    def _show(self) -> None:
        """Shows the child what was put in, and wakes it."""
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
            pass  # it was told often enough
        except OSError:
            self._lost()
