"""A process of the lattice, started by a relay: a NATS server, a bridge or a monitor.

    python -m lattice.process < settings.json

The settings are one JSON object: `kind`, `logging` (as for `logging.config.dictConfig`), the two
pipes of the supervisor, `lifeline_fd` and `ready_fd` (or null), and what the kind needs. The
process ends at SIGTERM or SIGINT, and when the other end of its lifeline is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import logging.config
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from peer import loops
from peer.errors import PeerError
from proto.identity.errors import SecretError
from proto.lattice.errors import LatticeError

READY: Final = b"ready\n"
FAILED: Final = 1
END_S: Final = 12.0
"""Seconds that the tasks of a process have to end: calls under way get ten seconds of it."""

logger = logging.getLogger("lattice")

Run = Callable[[dict[str, Any], asyncio.Event, Callable[[], None]], Awaitable[None]]
"""Function that runs a kind of process until the event is set, and calls the function once it is
ready."""


def main() -> int:
    """Run the process that standard input describes, and return its exit code: 1 if it failed."""
    settings = json.load(sys.stdin)
    logging.config.dictConfig(settings["logging"])
    try:
        loops.run(_run(settings))
    except (LatticeError, PeerError, SecretError) as error:
        logger.error("%s: %s", settings["kind"], error)
        return FAILED
    return 0


async def _run(settings: dict[str, Any]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with contextlib.ExitStack() as watching:
        if (lifeline := settings.get("lifeline_fd")) is not None:

            def ended() -> None:  # this is the end of file: nothing is ever written
                loop.remove_reader(lifeline)
                stop.set()

            loop.add_reader(lifeline, ended)
            watching.callback(loop.remove_reader, lifeline)
        await _kind(settings["kind"])(settings, stop, lambda: _tell_ready(settings))


async def together(stop: asyncio.Event, *works: Coroutine[Any, Any, None]) -> None:
    """Run several coroutines until the event is set, or until one of them ends.

    Raises:
        Exception: the exception of a coroutine that failed.
    """
    tasks = {asyncio.create_task(each) for each in works}
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (stopping, *tasks):
            task.cancel()
        _, late = await asyncio.wait(tasks, timeout=END_S)
        for task in late:  # its clean-up hangs
            logger.warning("%s did not end in time", task.get_coro())
            task.cancel()
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


def goes_on() -> bool:
    """Return whether this task is not cancelled: redis-py swallows a cancellation at times."""
    task = asyncio.current_task()
    return task is None or not task.cancelling()


def _kind(name: str) -> Run:
    # Imported here because each kind imports many modules that the others do not need.
    if name == "bridge":
        from lattice.bridge.main import run
    elif name == "monitor":
        from lattice.monitor.main import run
    else:
        from lattice.nats import run
    return run


def _tell_ready(settings: dict[str, Any]) -> None:
    descriptor = settings.pop("ready_fd", None)
    if descriptor is not None:
        with contextlib.suppress(BrokenPipeError):
            os.write(descriptor, READY)
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
