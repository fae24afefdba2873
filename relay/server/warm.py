"""The supervisor's side of a warm parent: starts it, requests children, adopts and reaps them.

    first = fork_first(imports)           # before the event loop and any thread
    warm = WarmParent(first, imports)
    process = await warm.fork(request)    # None: start it without (`relay.server.child.launch`)
    await warm.renew()                    # new code and settings from now on
    await warm.close()

A child is forked twice, and the process in the middle ends at once. During that time this process
is marked as the one to which Linux gives children whose parent has ended, so it becomes the child's
parent: exit code, signals and process tree are as if it had started the child itself. A warm parent
that has ended is replaced. One that cannot fork what is requested is not used again until the next
rolling restart. One that is idle is ended, so that memory that it shares with its children becomes
theirs.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from relay.server import open_files, warm_main
from relay.server.child import child_environment, describe_end, module_command
from relay.server.warm_request import MAX_MESSAGE_BYTES, Request

MODULE: Final = warm_main.__name__
NAME: Final = "warm parent"
REST_S: Final = 30.0
"""Seconds without a request after which the warm parent is ended. It takes 20 MiB of its own,
because children copy the memory that they write to. The next child then waits a second for a new
one."""
ANSWER_S: Final = 60.0
"""Seconds to wait for an answer, imports included; a slower warm parent is taken to hang."""
ATTEMPTS: Final = 2
"""Attempts for one child: with the current warm parent, and with its successor if it has ended."""
_PR_SET_CHILD_SUBREAPER: Final = 36

First = tuple[int, socket.socket]
"""Process id of a warm parent, and the socket to it."""

logger = logging.getLogger("relay.supervisor")


class WarmParentError(Exception):
    """The warm parent cannot fork this child; the text says why."""


class Adopted:
    """A child of this process that another process forked; used like a `Process` of asyncio."""

    def __init__(self, pid: int) -> None:
        """Watch a process.

        Raises:
            ChildProcessError: It is not a child of this process.
        """
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(pid)
        self._loop.add_reader(self._pidfd, self._reap)

    async def wait(self) -> int:
        """Wait until it ends, and return its exit code; -N if signal N ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the child has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it now."""
        self.send_signal(signal.SIGKILL)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()


class WarmParent:
    """The current warm parent and its successors. `close()` must be called in the end."""

    def __init__(self, first: First | None, imports: Sequence[str]) -> None:
        """Use a warm parent that was forked already, if any.

        Args:
            first: Result of `fork_first`; None: one is started when it is needed.
            imports: Modules that its successors import.
        """
        self._imports = imports
        self._lock = asyncio.Lock()
        self._process: Adopted | asyncio.subprocess.Process | None = None
        self._connection: socket.socket | None = None
        self._watch: asyncio.Task[None] | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._resting: asyncio.Task[None] | None = None
        self._given_up = False
        if first is not None:
            pid, connection = first
            self._use(Adopted(pid), connection)

    @property
    def pid(self) -> int | None:
        """Process id of the current warm parent."""
        return None if self._process is None else self._process.pid

    async def fork(self, request: Request, fds: Sequence[int] = ()) -> Adopted | None:
        """Fork a child; return None if it has to be started without a warm parent.

        Args:
            request: Request, whose `fds` are the numbers that `fds` get in the child.

        Raises:
            OSError: There is no memory or process for it.
        """
        async with self._lock:
            for _ in range(ATTEMPTS):
                if self._given_up or (self._connection is None and not await self._start()):
                    return None
                self._rest_later()
                try:
                    return await self._ask(request, fds)
                except ConnectionError:
                    await self._drop()  # it has ended, which `_watch_end` reports
                except WarmParentError as error:
                    self._give_up(error)
                    await self._drop()
                except BaseException as error:
                    if not isinstance(error, OSError):
                        await self._drop()  # its answer would be taken for another's
                    raise
            self._give_up("it ended twice")
            return None

    async def renew(self) -> None:
        """Let a new warm parent fork the next child; it reads code and settings again."""
        async with self._lock:
            await self._drop()
            self._given_up = False

    async def close(self) -> None:
        """End the warm parent; its children continue."""
        async with self._lock:
            self._given_up = True
            await self._drop()

    def _rest_later(self) -> None:
        """End it after `REST_S` without a request."""
        if self._rest is not None:
            self._rest.cancel()
        self._rest = asyncio.get_running_loop().call_later(REST_S, self._begin_rest)

    def _begin_rest(self) -> None:
        if self._lock.locked():
            self._rest_later()
        else:
            self._resting = asyncio.create_task(self.renew(), name=f"end the {NAME}")

    async def _ask(self, request: Request, fds: Sequence[int]) -> Adopted | None:
        assert self._connection is not None
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            with adopting():
                self._connection.sendmsg([request.encode()], rights)
                async with asyncio.timeout(ANSWER_S):
                    told = await asyncio.get_running_loop().sock_recv(
                        self._connection, MAX_MESSAGE_BYTES
                    )
                if not told:
                    raise ConnectionResetError
                answer: dict[str, Any] = json.loads(told)
                if "error" in answer:
                    raise WarmParentError(answer["error"])
                if "errno" in answer:
                    raise OSError(answer["errno"], os.strerror(answer["errno"]))
                return Adopted(answer["pid"]) if request.module else None
        except TimeoutError:
            raise WarmParentError(f"no answer within {ANSWER_S:g} s") from None
        except ChildProcessError:
            raise WarmParentError("its children do not become those of the supervisor") from None

    async def _start(self) -> bool:
        """Start a warm parent from a command line; return False if that is impossible."""
        ours, theirs = _sockets()
        names = [argument for name in self._imports for argument in ("--import", name)]
        try:
            process = await asyncio.create_subprocess_exec(
                *module_command(MODULE, ["--socket-fd", str(theirs.fileno()), *names]),
                env=child_environment(),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            ours.close()
            self._give_up(error)
            return False
        finally:
            theirs.close()
        self._use(process, ours)
        return True

    def _use(
        self, process: Adopted | asyncio.subprocess.Process, connection: socket.socket
    ) -> None:
        self._process, self._connection = process, connection
        self._watch = asyncio.create_task(self._watch_end(process), name=NAME)

    async def _watch_end(self, process: Adopted | asyncio.subprocess.Process) -> None:
        """Report an unexpected end."""
        code = await process.wait()
        if self._connection is not None and process is self._process:
            logger.warning(
                "the %s (pid %d) %s; the next child gets another",
                NAME,
                process.pid,
                describe_end(code),
            )
            self._connection.close()
            self._connection = self._process = None

    async def _drop(self) -> None:
        """Kill the current warm parent, whatever it is doing."""
        process, self._process = self._process, None
        if self._rest is not None:
            self._rest.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _give_up(self, reason: object) -> None:
        self._given_up = True
        logger.warning("no %s until the next rolling restart: %s", NAME, reason)


def fork_first(imports: Sequence[str]) -> First | None:
    """Fork a warm parent from this process, which has no threads and no connections yet.

    This function does not return in the warm parent and its children: they exit.

    Args:
        imports: Modules that need no settings, to be imported at once.

    Returns:
        Process id and socket of the warm parent; None on systems that do not support it.
    """
    if not supported():
        return None
    ours, theirs = _sockets()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.setpgid(0, 0)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        warm_main.show_as([MODULE])
        open_files.raise_limit()
        sys.exit(warm_main.run(theirs, imports))
    theirs.close()
    return pid, ours


def supported() -> bool:
    """Check whether this system can give a process the children of others, and report their end."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        with adopting():
            pass
    except (OSError, AttributeError):
        return False
    return True


def _sockets() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Adopt orphans among descendants inside the block; outside, this process need not reap them.

    Raises:
        OSError: The system does not support this.
    """
    _set_adopting(True)
    try:
        yield
    finally:
        _set_adopting(False)


def _set_adopting(adopts: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no adoption of processes")
