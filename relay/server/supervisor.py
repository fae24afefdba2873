"""The parent of a relay: keeps its processes running and replaces them one after another.

    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.keep(valkey)               # returns when it is ready
        await supervisor.start_workers(2, worker)   # returns when all are ready
        await supervisor.stopped()                  # SIGTERM or SIGINT
    ... everything kept was stopped: workers first, then the rest, the last started first

A child that ends by itself is restarted after a pause that doubles with each consecutive failure.
SIGHUP replaces the workers one after another: the new worker is ready before its predecessor is
asked to stop, so there is always one that accepts. Children that are not vital are restarted after
the workers. A second SIGTERM or SIGINT does not wait for drains.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from typing import Final

from proto.limits.backoff import Backoff
from relay.server import warm
from relay.server.child import Child, ChildSpec, describe_end
from relay.server.warm import WarmParent

RESTART: Final = Backoff(first_s=0.5, longest_s=30.0)
STEADY_AFTER_S: Final = 60.0
"""Seconds after which the end of a child does not count as a consecutive failure."""

REPLACEMENT_READY_S: Final = 60.0
"""Seconds until a replacement must be ready; otherwise it is stopped and the old worker stays."""

SAME_SIGNAL_S: Final = 0.5
"""Seconds within which a second signal is taken for the same request to stop: it may arrive twice,
to the process group and passed on by make or a shell."""

logger = logging.getLogger("relay.supervisor")


class StartError(Exception):
    """A child ended before it was ready for the first time."""


class Kept:
    """One child and its successors, until it is retired."""

    def __init__(self, spec: ChildSpec, warm_parent: WarmParent | None = None) -> None:
        self.spec = spec
        self._warm = warm_parent
        self.child: Child | None = None
        self.ready = asyncio.Event()
        """Set while the current child is ready."""
        self._was_ready = False
        self._renewing = False
        self._killed = False
        self._retired = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"keep {spec.name}")

    async def wait_ready(self) -> None:
        """Wait until the child is ready for the first time.

        Raises:
            StartError: A vital child ended before it was ready.
        """
        ready = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait({ready, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                self._task.result()
                raise StartError(f"{self.spec.name} was stopped before it was ready")
        finally:
            ready.cancel()

    async def retire(self) -> None:
        """Stop the child for good."""
        self._retired.set()
        if self.child is not None:
            code = await self.child.stop()
            if code == -signal.SIGKILL and not self._killed:
                logger.warning(
                    "%s (pid %d) did not stop within %g s and was killed",
                    self.spec.name,
                    self.child.pid,
                    self.spec.stop_grace_s,
                )
        with contextlib.suppress(StartError):
            await self._task

    async def renew(self) -> None:
        """Stop the child; its successor starts immediately."""
        if self.child is not None:
            self._renewing = True
            await self.child.stop()

    def kill(self) -> None:
        """Kill the child for good, without waiting for it."""
        self._killed = True
        self._retired.set()
        if self.child is not None:
            self.child.kill()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while not self._retired.is_set():
            began = loop.time()
            try:
                child = self.child = await Child.spawn(self.spec, self._warm)
            except OSError as error:  # no memory, process or file descriptor
                if self.spec.vital and not self._was_ready:
                    raise StartError(f"{self.spec.name} cannot be started: {error}") from None
                failures += 1
                await self._pause(failures, f"{self.spec.name} cannot be started ({error})")
                continue
            self._renewing = False  # an earlier request is satisfied by this child
            if self._retired.is_set():
                child.kill()
            watcher = asyncio.create_task(self._pass_on_ready(child))
            code = await child.wait()
            watcher.cancel()
            self.ready.clear()
            if self._retired.is_set():
                return
            if self._renewing:
                failures = 0
                continue
            if self.spec.vital and not self._was_ready:
                raise StartError(f"{self.spec.name} {describe_end(code)} before it was ready")
            failures = 1 if loop.time() - began >= STEADY_AFTER_S else failures + 1
            what = f"{self.spec.name} (pid {child.pid}) {describe_end(code)}"
            await self._pause(failures, what)

    async def _pause(self, failures: int, what: str) -> None:
        """Wait before the next start, or until the child is retired."""
        pause_s = RESTART.delay_s(failures, random.random)
        logger.error("%s; starting it again in %g s", what, pause_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._retired.wait()

    async def _pass_on_ready(self, child: Child) -> None:
        await child.ready.wait()
        if self._was_ready:
            logger.info("%s (pid %d) is ready again", self.spec.name, child.pid)
        self._was_ready = True
        self.ready.set()


class Supervisor:
    """All kept children of one relay."""

    def __init__(self, warm_parent: WarmParent | None = None) -> None:
        """Begin without children.

        Args:
            warm_parent: Process that forks the children whose specification lists imports.
        """
        self._warm = warm_parent
        self._others: list[Kept] = []
        self._workers: dict[int, Kept] = {}
        self._make_worker: Callable[[int], ChildSpec] | None = None
        self._stop = asyncio.Event()
        self._stop_asked_at = 0.0
        self._roll: asyncio.Task[None] | None = None
        self._roll_again = False
        self._terminal = _has_terminal()

    async def keep(self, spec: ChildSpec) -> None:
        """Start a child, wait until it is ready and keep it running.

        Raises:
            StartError: It is vital and ended before it was ready.
        """
        kept = Kept(spec, self._warm)
        self._others.append(kept)
        await self._unless_stopped(kept)

    async def start_workers(self, count: int, make_spec: Callable[[int], ChildSpec]) -> None:
        """Start the workers of slots 0 to `count` - 1 and wait until all are ready.

        Raises:
            StartError: One of them ended before it was ready.
        """
        self._make_worker = make_spec
        for slot in range(count):
            self._workers[slot] = Kept(make_spec(slot), self._warm)
        for kept in list(self._workers.values()):
            await self._unless_stopped(kept)

    def worker_pids(self) -> dict[int, int]:
        """Return the process ids of the current workers, by slot."""
        return {slot: kept.child.pid for slot, kept in self._workers.items() if kept.child}

    def processes(self) -> dict[int, str]:
        """Return the names of all current children, by process id."""
        kept = [*self._workers.values(), *self._others]
        found = {each.child.pid: each.spec.name for each in kept if each.child}
        if self._warm is not None and self._warm.pid is not None:
            found[self._warm.pid] = warm.NAME
        return found

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    async def stopped(self) -> None:
        """Wait for the signal to stop."""
        await self._stop.wait()

    def stop(self) -> None:
        """Begin to stop; if called again after a while, stop without waiting for drains."""
        now = asyncio.get_running_loop().time()
        if self._stop.is_set():
            if now - self._stop_asked_at < SAME_SIGNAL_S:
                return
            logger.warning("stopping at once")
            for kept in (*self._workers.values(), *self._others):
                kept.kill()
            return
        self._stop_asked_at = now
        self._stop.set()

    def restart_workers(self) -> None:
        """Replace the workers one after another; if that is in progress, repeat it afterwards."""
        if self._roll is not None and not self._roll.done():
            self._roll_again = True
            return
        self._roll = asyncio.create_task(self._replace_all(), name="rolling restart")

    @contextlib.asynccontextmanager
    async def handling_signals(self) -> AsyncIterator[None]:
        """Handle SIGTERM, SIGINT and SIGHUP inside; stop everything kept on the way out."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        try:
            yield
        finally:
            self._stop.set()
            await self._retire_all()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _hang_up(self) -> None:
        if self._terminal and not _has_terminal():
            logger.info("the terminal is gone: stopping")
            self.stop()
        else:
            self.restart_workers()

    async def _replace_all(self) -> None:
        if self._make_worker is None:
            return
        while True:
            self._roll_again = False
            if self._warm is not None:
                await self._warm.renew()
            for slot, old in sorted(self._workers.items()):
                if self.stopping or not await self._replace(slot, old):
                    return
            await asyncio.gather(*(each.renew() for each in self._others if not each.spec.vital))
            logger.info("rolling restart done")
            if not self._roll_again:
                return

    async def _replace(self, slot: int, old: Kept) -> bool:
        assert self._make_worker is not None
        # A separate slot, so that the two never report under the same name.
        new_slot = next(n for n in range(len(self._workers) + 1) if n not in self._workers)
        new = self._workers[new_slot] = Kept(self._make_worker(new_slot), self._warm)
        try:
            async with asyncio.timeout(REPLACEMENT_READY_S):
                await self._unless_stopped(new)
        except (StartError, TimeoutError) as error:
            reason = str(error) or f"not ready within {REPLACEMENT_READY_S:g} s"
            logger.error("rolling restart given up, the old workers stay: %s", reason)
            await new.retire()
            del self._workers[new_slot]
            return False
        if self.stopping:
            return False
        logger.info("%s takes over from %s", new.spec.name, old.spec.name)
        await old.retire()
        del self._workers[slot]
        return True

    async def _unless_stopped(self, kept: Kept) -> None:
        stopped = asyncio.create_task(self._stop.wait())
        ready = asyncio.create_task(kept.wait_ready())
        try:
            await asyncio.wait({stopped, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
        finally:
            stopped.cancel()
            ready.cancel()

    async def _retire_all(self) -> None:
        if self._roll is not None:
            self._roll.cancel()
            await asyncio.wait({self._roll})
        await asyncio.gather(*(kept.retire() for kept in self._workers.values()))
        for kept in reversed(self._others):
            await kept.retire()


def _has_terminal() -> bool:
    """Check whether a terminal can reach this process; closing its window sends SIGHUP too."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
