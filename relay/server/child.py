"""One child process of the supervisor: start with a lifeline, watch, stop, kill.

A child leads its own process group, so that Ctrl-C in a terminal reaches the supervisor alone and
it can stop the children in order. The child inherits the reading end of its lifeline and the
writing end of a ready pipe, on which it reports readiness; both descriptor numbers are in its
command line.
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
from typing import TYPE_CHECKING

from relay.server.lifeline import READY_LINE
from relay.server.warm_request import Request

if TYPE_CHECKING:
    from relay.server.warm import Adopted, WarmParent

SOURCE_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The command of a child: `python -P -m <module> --lifeline-fd N --ready-fd N <arguments>`."""

    name: str
    module: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    """Variables added to the supervisor's own environment."""
    inherited_fds: Sequence[int] = ()
    stop_grace_s: float = 10.0
    """Seconds from SIGTERM to SIGKILL."""
    imports: Sequence[str] | None = None
    """Modules that a warm parent imports before it forks this child, with Django set up; None: the
    child is started without a warm parent."""
    vital: bool = True
    """Whether the relay cannot work without it: the supervisor gives up if such a child cannot even
    start. Other children are retried, and a rolling restart may stop them before it starts their
    successors."""


class Child:
    """A running child. `await spawn(spec)` creates one; `wait()` or `stop()` must follow."""

    def __init__(self, spec: ChildSpec, process: asyncio.subprocess.Process | Adopted) -> None:
        self.spec = spec
        self.pid = process.pid
        self.ready = asyncio.Event()
        self._process = process
        self._lifeline_fd = -1
        self._ready_task: asyncio.Task[None] | None = None

    @classmethod
    async def spawn(cls, spec: ChildSpec, warm: WarmParent | None = None) -> Child:
        """Start the process; it has not reported readiness yet.

        Raises:
            OSError: There is no memory, process or file descriptor for it.
        """
        lifeline_read, lifeline_write = os.pipe()
        ready_read, ready_write = os.pipe()
        try:
            process = await launch(
                spec.module,
                [
                    *("--lifeline-fd", str(lifeline_read), "--ready-fd", str(ready_write)),
                    *spec.arguments,
                ],
                environment=spec.environment,
                fds=(*spec.inherited_fds, lifeline_read, ready_write),
                title=(spec.module, *spec.arguments),
                imports=spec.imports,
                warm=warm,
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
        """Wait until it ends, and return its exit code; -N if signal N ended it."""
        code = await self._process.wait()
        if self._ready_task is not None:
            self._ready_task.cancel()
            self._ready_task = None
        if self._lifeline_fd >= 0:
            os.close(self._lifeline_fd)
            self._lifeline_fd = -1
        return code

    async def stop(self) -> int:
        """Ask it to end, kill it after its grace period, and return its exit code."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.spec.stop_grace_s):
                return await self.wait()
        except TimeoutError:
            self.kill()
            return await self.wait()

    def kill(self) -> None:
        """Kill it now."""
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


async def launch(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    fds: Sequence[int] = (),
    stdout_fd: int | None = None,
    title: Sequence[str] = (),
    imports: Sequence[str] | None = None,
    warm: WarmParent | None = None,
) -> asyncio.subprocess.Process | Adopted:
    """Start one of our modules as a process: forked by the warm parent, or from a command line.

    Args:
        environment: Variables added to this process's own.
        fds: File descriptors that it inherits, under the same numbers.
        stdout_fd: Its standard output, unless it shares this process's.
        title: Command line that tools show for a forked process.
        imports: See `ChildSpec`.

    Raises:
        OSError: There is no memory, process or file descriptor for it.
    """
    variables = child_environment(environment)
    if warm is not None and imports is not None:
        numbers = {fd: fd for fd in fds} | ({} if stdout_fd is None else {stdout_fd: 1})
        request = Request(
            environment=variables,
            set_up=True,
            imports=imports,
            module=module,
            arguments=arguments,
            title=title,
            fds=list(numbers.values()),
        )
        forked = await warm.fork(request, list(numbers))
        if forked is not None:
            return forked
    return await asyncio.create_subprocess_exec(
        *module_command(module, arguments),
        env=variables,
        pass_fds=fds,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout_fd,
        process_group=0,
    )


async def read_all(fd: int) -> bytes:
    """Read a pipe to its end, and close it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
    )
    try:
        return await reader.read()
    finally:
        transport.close()


def describe_end(code: int) -> str:
    """Describe in words how a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs one of our modules."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment(entries: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with `entries` added, for one of its children."""
    environment = {**os.environ, **(entries or {})}
    # Children import the same modules as this process, wherever it was started: -P keeps the
    # current folder out of the path.
    path = [str(SOURCE_ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    environment.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
    return environment
