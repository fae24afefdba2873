"""`rmb serve`: answer commands with programs on this host, or with Python modules."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from peer.arguments import SECRET_VARIABLE, UsageError, whole_number
from peer.cli import output
from peer.cli.inputs import check_json, utf8
from peer.cli.session import Session
from peer.client.serving import ClientHandler
from peer.modules.api import (
    JSON_SCHEMA,
    MAX_BODY_BYTES,
    CommandError,
    Module,
    Modules,
    Request,
    Response,
)
from peer.modules.files import Uploads
from peer.modules.files_options import add_upload_options, limits_of, upload_folder
from peer.modules.loading import ModuleError, load
from peer.modules.version import version_module
from peer.stdout import given_up
from proto.rmb.bounds import MAX_CONNECTION_BYTES
from proto.rmb.errors import CODE_OTHER

log = logging.getLogger(__name__)

DEFAULT_JOBS: Final = 8
MAX_JOBS: Final = 256
READ_BYTES: Final = 64 * 1024

EPILOG: Final = """\
examples:
  rmb serve echo=cat
  rmb serve 'words=wc -w' 'shout=tr a-z A-Z' --jobs 4
  rmb serve --module my_package.calc:module
  rmb serve --uploads files 'reports.new=./on-report'

A program reads the request from standard input and writes the answer to standard output. The
variables RMB_SOURCE and RMB_COMMAND name the caller and the command. If the exit code is not 0, or
the request expires first, the caller gets an error. `rmb serve` itself answers `rmb.version`.
Uploads of each sender are in a folder of their own. A sender may name a command to call when its
file has arrived.

Only one process at a time can serve a twin's id: without --sid, `rmb serve` replaces a gateway
(rmb-peer) of the same twin. With --sid NAME, callers send to TWIN:NAME. `rmb serve` prints a line
for each request and runs until Ctrl-C.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "programs",
        nargs="*",
        metavar="CMD=PROGRAM",
        help="command, and the program that answers it",
    )
    parser.add_argument(
        "--module",
        action="append",
        metavar="PACKAGE:NAME",
        help="Python module that answers commands; repeatable",
    )
    parser.add_argument("--uploads", metavar="DIR", help="accept files into this folder")
    parser.add_argument(
        "--sid", type=_sid, metavar="NAME", help="session id (default: no session id)"
    )
    parser.add_argument(
        "--jobs",
        type=whole_number(1, MAX_JOBS),
        default=DEFAULT_JOBS,
        metavar="N",
        help=f"maximum number of programs that run at once (default {DEFAULT_JOBS})",
    )
    add_upload_options(parser)


async def run(options: argparse.Namespace, session: Session) -> int:
    """Serve until SIGTERM or SIGINT."""
    programs = _programs(options.programs)
    modules = _modules(options)
    if not programs and len(modules) == 1:
        raise UsageError("nothing to serve: add CMD=PROGRAM, --module or --uploads")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if not session.debug:
        logging.getLogger().setLevel(logging.WARNING)  # hide relays' connects and losses
    jobs = asyncio.Semaphore(options.jobs)
    handlers: dict[str, ClientHandler] = {
        command: _Job(arguments, jobs, session.json) for command, arguments in programs.items()
    }
    async with session.client(sid=options.sid, handlers=handlers, modules=modules) as client:
        served = [*programs, *(f"{module.prefix}.*" for module in modules)]
        where = list(session.relays)
        if session.json:
            print(json.dumps({"serving": served, "as": str(client.address), "relays": where}))
        else:
            print(f"serving {' '.join(served)} as twin {client.address} at {' '.join(where)}")
        sys.stdout.flush()
        await stop.wait()
    return 0


class _Job:
    """Handler of one command, which runs a program."""

    def __init__(self, arguments: list[str], jobs: asyncio.Semaphore, as_json: bool) -> None:
        self._arguments = arguments
        self._jobs = jobs
        self._as_json = as_json

    async def __call__(self, request: Request) -> Response:
        began = time.perf_counter()
        outcome = "cancelled"
        try:
            async with self._jobs:
                answer = await _run(self._arguments, request)
            outcome = output.size(len(answer))
            return Response(answer, JSON_SCHEMA if _is_json(answer) else None)
        except CommandError as error:
            outcome = error.message
            raise
        finally:
            self._tell(request, outcome, (time.perf_counter() - began) * 1e3)

    def _tell(self, request: Request, outcome: str, took_ms: float) -> None:
        try:
            self._print(request, outcome, took_ms)
        except OSError as error:  # the request was carried out nevertheless
            if why := given_up(error):
                log.warning("%s", why)

    def _print(self, request: Request, outcome: str, took_ms: float) -> None:
        source, command = str(request.source), request.command
        if self._as_json:
            fields = {"source": source, "command": command, "ms": round(took_ms, 3)}
            print(json.dumps({**fields, "outcome": outcome}), flush=True)
            return
        at = time.strftime("%H:%M:%S")
        asked = output.size(len(request.payload))
        shown = output.printable(f"{at}  {source}  {command}  {asked} -> {outcome}")
        print(f"{shown}, {took_ms:.0f} ms", flush=True)


async def _run(arguments: list[str], request: Request) -> bytes:
    """Return the answer of a program to a request.

    Raises:
        CommandError: the program failed, or wrote too much.
    """
    details = {"RMB_SOURCE": str(request.source), "RMB_COMMAND": request.command}
    inherited = {name: value for name, value in os.environ.items() if name != SECRET_VARIABLE}
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**inherited, **details},
        start_new_session=True,  # so that its child processes can be killed too
    )
    try:
        _, answer = await asyncio.gather(_write(process, request.payload), _read(process))
        code = await process.wait()
    except BaseException:
        # Also if the request expired meanwhile: its answer is no longer needed.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # `wait` would not return while a pipe is not read to its end.
        process._transport.close()  # type: ignore[attr-defined]
        await process.wait()
        raise
    if code:
        raise CommandError(CODE_OTHER, f"the program ended with code {code}")
    return answer


async def _write(process: asyncio.subprocess.Process, payload: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(payload)
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the program need not read its input


async def _read(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    answer = bytearray()
    while part := await process.stdout.read(READ_BYTES):
        answer += part
        if len(answer) > MAX_BODY_BYTES:
            raise CommandError(CODE_OTHER, f"the program wrote more than {MAX_BODY_BYTES} bytes")
    return bytes(answer)


def _programs(texts: Sequence[str]) -> dict[str, list[str]]:
    programs: dict[str, list[str]] = {}
    for text in texts:
        command, sign, line = text.partition("=")
        try:
            arguments = shlex.split(line) if sign else []
        except ValueError as error:
            raise UsageError(f"{text}: {error}") from None
        if not sign:
            # The text is not repeated: it may be a word of a secret that was not quoted.
            raise UsageError("a command must have the form CMD=PROGRAM, such as echo=cat")
        if not (command and arguments):
            raise UsageError(f"{text}: must have the form CMD=PROGRAM, such as echo=cat")
        if command in programs:
            raise UsageError(f"{command}: given twice")
        if shutil.which(arguments[0]) is None:
            raise UsageError(f"{text}: program {arguments[0]} not found")
        programs[command] = arguments
    return programs


def _modules(options: argparse.Namespace) -> list[Module]:
    found = [version_module()]
    try:
        if options.uploads is not None:
            found.append(Uploads(upload_folder(options.uploads), limits_of(options)))
        # Modules of installed packages are for the gateway, which always runs.
        found += load(options.module or (), installed=())
        Modules.of(*found)
    except (ModuleError, ValueError) as error:
        raise UsageError(str(error)) from None
    return found


def _is_json(payload: bytes) -> bool:
    try:
        check_json(payload)
    except (ValueError, RecursionError):
        return False
    return True


def _sid(text: str) -> str:
    if len(utf8(text).encode()) > MAX_CONNECTION_BYTES:
        raise argparse.ArgumentTypeError(f"at most {MAX_CONNECTION_BYTES} bytes")
    return text
