"""Commands that tests fork from a process that has imported the relay (`relay.server.warm_main`).

A command of the relay takes a second of CPU time to import what it needs, and the tests run some
thousand. They are still the real commands: each has its own session or process group, folder,
environment, arguments and streams, and is a child of this process. Tests of the command line itself
start it as a program (`tests/e2e/test_runrelay.py`, `tests/rmbsite/test_commands.py`).
"""

from __future__ import annotations

import array
import atexit
import dataclasses
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotpath import compiled
from relay.server import warm, warm_main
from relay.server.warm_request import MAX_MESSAGE_BYTES, Request

ROOT = Path(__file__).parents[2]
WITHOUT_TELEMETRY = Path(__file__).with_name("without_telemetry")
PRELOADED = "tests.support.preloaded"
MANAGE = str(ROOT / "manage.py")


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the relay's variables, except the hot path's switch."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(compiled.SWITCH) or not name.startswith("RMB_")
    }


class Forked(subprocess.Popen[Any]):
    """`subprocess.Popen` of `manage.py`; the arguments are those of the command.

    If Python itself would behave differently in the environment, such as one with telemetry, the
    command is not forked but starts as a program. `module` names another program than `manage.py`,
    by a module with a `main`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        module: str = "",
        **options: Any,
    ) -> None:
        self._request = Request(
            environment=dict(env),
            module=module or "manage",
            program="" if module else MANAGE,
            arguments=list(arguments),
            folder=str(options.get("cwd") or Path.cwd()),
            new_session=bool(options.get("start_new_session")),
        )
        program = ["-m", module] if module else [MANAGE]
        super().__init__([sys.executable, *program, *arguments], env=env, **options)

    def _execute_child(self, *arguments: Any) -> None:
        if not forkable(self._request.environment):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        names = ["p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"]
        code = subprocess.Popen._execute_child.__code__  # type: ignore[attr-defined]
        where = code.co_varnames.index(names[0]) - 1
        pipes = arguments[where : where + len(names)]
        ours = dict(zip(names, pipes, strict=True))
        streams = [
            own if ours[name] == -1 else ours[name]
            for own, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        try:
            self.pid = _warm_parent().fork(self._request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    arguments: Sequence[str], *, timeout: float, env: Mapping[str, str], **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run `manage.py` as `subprocess.run` does, with captured output."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Forked(arguments, env=env, stdin=subprocess.DEVNULL, **streams, **options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def environment() -> dict[str, str]:
    """Return that of the warm parent: this process's, without settings of a relay."""
    inherited = without_settings(os.environ)
    inherited.pop("DJANGO_SETTINGS_MODULE", None)
    path = [str(WITHOUT_TELEMETRY), str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])]
    return {**inherited, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(path)}


def forkable(variables: Mapping[str, str]) -> bool:
    """Check whether Python would start with this environment as the warm parent did."""

    def read_by_python(of: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in of.items()
            if name.startswith("PYTHON") and name != "PYTHONPATH"
        }

    path = variables.get("PYTHONPATH", "").split(os.pathsep)
    same = read_by_python(variables) == read_by_python(environment())
    return warm.supported() and same and str(WITHOUT_TELEMETRY) in path


class _WarmParent:
    """The warm parent of this run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", warm_main.__name__, "--import", PRELOADED),
                *("--socket-fd", str(theirs.fileno())),
            ],
            cwd=ROOT,
            env=environment(),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        atexit.register(self._end)

    def fork(self, request: Request, streams: Sequence[int]) -> int:
        """Fork a child of this process, with these standard streams; return its id."""
        numbered = dataclasses.replace(request, fds=list(range(len(streams))))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        with self._lock, warm.adopting():
            self._connection.sendmsg([numbered.encode()], rights)
            answer = json.loads(self._connection.recv(MAX_MESSAGE_BYTES) or b"{}")
        pid: int = answer["pid"]
        return pid

    def _end(self) -> None:
        self._connection.close()
        self._process.wait()


@functools.cache
def _warm_parent() -> _WarmParent:
    return _WarmParent()
