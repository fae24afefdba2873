"""One child process of the supervisor: started with its lifeline, watched, asked to end, ended.

A child leads its own process group, so that Ctrl-C in a terminal reaches the supervisor alone and
children are stopped in order. It gets the reading end of its lifeline and, where it reports
readiness, the writing end of a ready pipe; both numbers stand in its command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relay.server.lifeline import READY_LINE

SOURCE_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to start: `python -P -m <module> --lifeline-fd N --ready-fd N <arguments>`."""

    name: str
    module: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    """Entries on top of the supervisor's own environment."""
    inherited_fds: Sequence[int] = ()
    stop_grace_s: float = 10.0
    """From SIGTERM to SIGKILL."""
    vital: bool = True
    """Whether the relay is nothing without it: it gives up when such a child cannot even start.
    The others are tried again, and a rolling restart may stop them before it starts them anew."""


class Child:
    """A running child. `await spawn(spec)` makes one; `wait()` or `stop()` must follow."""

    def __init__(self, spec: ChildSpec, process: asyncio.subprocess.Process) -> None:
        self.spec = spec
        self.pid = process.pid
        self.ready = asyncio.Event()
        self._process = process
        self._lifeline_fd = -1
        self._ready_task: asyncio.Task[None] | None = None

    @classmethod
    async def spawn(cls, spec: ChildSpec) -> Child:
        """Start the process; it has said nothing yet."""
        lifeline_read, lifeline_write = os.pipe()
        ready_read, ready_write = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *module_command(
                    spec.module,
                    [
                        *("--lifeline-fd", str(lifeline_read), "--ready-fd", str(ready_write)),
                        *spec.arguments,
                    ],
                ),
                env=child_environment(spec.environment),
                pass_fds=(*spec.inherited_fds, lifeline_read, ready_write),
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        except BaseException:
            os.close(lifeline_write)
            os.close(ready_read)
            raise
        finally:
            os.close(lifeline_read)
            os.close(ready_write)
        child = cls(spec, process)
        child._lifeline_fd = lifeline_write
        child._ready_task = asyncio.create_task(child._await_ready(ready_read))
        return child

    async def wait(self) -> int:
        """Wait for the end; a negative code is the number of the signal that ended it."""
        code = await self._process.wait()
        if self._ready_task is not None:
            self._ready_task.cancel()
            self._ready_task = None
        if self._lifeline_fd >= 0:
            os.close(self._lifeline_fd)
            self._lifeline_fd = -1
        return code

    async def stop(self) -> int:
        """Ask it to end, and end it when it does not within its grace."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.spec.stop_grace_s):
                return await self.wait()
        except TimeoutError:
            self.kill()
            return await self.wait()

    def kill(self) -> None:
        """End it now."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _await_ready(self, ready_read: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ready_read, "rb", 0)
        )
        try:
            if await reader.readline() == READY_LINE:
                self.ready.set()
        finally:
            transport.close()


def describe_end(code: int) -> str:
    """The end of a process in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs one of our modules."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment(entries: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment for one of its children, and `entries`."""
    environment = {**os.environ, **(entries or {})}
    # Children import what this process imported, wherever it was started: -P keeps the current
    # folder out.
    path = [str(SOURCE_ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    environment.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
    return environment
