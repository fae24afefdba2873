"""`rmb upload`: send a file to another twin."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from peer.arguments import UsageError, whole_number
from peer.cli import output
from peer.cli.session import Session
from peer.modules.files import Uploads
from peer.modules.files_sender import Progress, Step, Uploaded
from proto.files.bounds import CHUNK_BYTES, SENDER_WINDOW_CHUNKS, STALL_S, WINDOW_CHUNKS
from proto.files.errors import RefusedError
from proto.files.names import check_command, check_name
from proto.identity.bounds import MAX_TWIN

SILENCE_S: Final = 10.0
"""Seconds without any answer after which the receiver's silence is reported; half of --give-up at
most."""

EPILOG: Final = f"""\
examples:
  rmb upload 102 report.pdf
  rmb upload 102 build.tar --name release-1.4.tar --cmd releases.new
  rmb upload 102 notes.txt --replace --json

The other twin's gateway must run with --uploads. When the whole file has arrived, the gateway
verifies its checksum, moves it into a folder for your twin and calls the command of --cmd. To
continue an interrupted upload, run the same command again within a day. A chunk has
{CHUNK_BYTES // 1024} KiB.

exit code: 0 the file has arrived, 1 failed, 2 invalid option
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    twin = whole_number(1, MAX_TWIN, "the id of a twin, ")
    parser.add_argument("twin", type=twin, metavar="TWIN", help="id of the receiver")
    parser.add_argument("file", type=Path, metavar="FILE", help="a regular file")
    parser.add_argument("--name", help="name at the receiver (default: the same name)")
    parser.add_argument(
        "--cmd", metavar="COMMAND", help="command to call once the file has arrived"
    )
    parser.add_argument("--replace", action="store_true", help="replace a file with this name")
    parser.add_argument(
        "--window",
        type=whole_number(1, WINDOW_CHUNKS),
        default=SENDER_WINDOW_CHUNKS,
        metavar="CHUNKS",
        help="maximum number of chunks sent and not yet confirmed "
        f"(1 to {WINDOW_CHUNKS}, default {SENDER_WINDOW_CHUNKS})",
    )
    parser.add_argument(
        "--give-up",
        type=_seconds,
        default=STALL_S,
        metavar="SECONDS",
        help=f"fail after this many seconds without progress (default {STALL_S:.0f})",
    )


async def run(options: argparse.Namespace, session: Session) -> int:
    """Send a file and print the result."""
    _check("--name", options.name, check_name)
    _check("--cmd", options.cmd, check_command)
    uploads = Uploads(None)
    with (
        output.Progress(session.json) as bar,
        _Silence(bar, options.twin, options.give_up) as silence,
    ):

        def progress(found: Progress) -> None:
            what = "reading" if found.step is Step.READING else "sending"
            silence.progress(found.step)
            bar.part(found.done_bytes, found.size_bytes, what)

        bar.waiting("signing in")
        async with session.client(modules=[uploads]):
            silence.begin()
            done = await uploads.send(
                options.twin,
                options.file,
                name=options.name,
                cmd=options.cmd,
                replace=options.replace,
                window=options.window,
                stall_s=options.give_up,
                on_progress=progress,
            )
    _show(done, options, session)
    return 0


class _Silence:
    """Reports once that a receiver has not answered yet.

    There is no error in that case: the relay stores requests for a twin that is not connected. Use
    it as a context manager.
    """

    def __init__(self, bar: output.Progress, twin: int, give_up_s: float) -> None:
        self._bar = bar
        self._text = (
            f"twin {twin} has not answered yet: it is disconnected, or runs no gateway; "
            f"waiting for up to {give_up_s:.0f} s (--give-up)"
        )
        self._after_s = min(SILENCE_S, give_up_s / 2)
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> _Silence:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def begin(self) -> None:
        """Start the timer: requests are sent to the receiver from now on."""
        self._end()
        self._timer = asyncio.get_running_loop().call_later(
            self._after_s, self._bar.say, self._text
        )

    def progress(self, step: Step) -> None:
        """Restart the timer while the file is read; stop it once the receiver has answered."""
        if step is Step.READING:
            self.begin()
        else:
            self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _show(done: Uploaded, options: argparse.Namespace, session: Session) -> None:
    if session.json:
        fields = {
            "id": done.id,
            "twin": options.twin,
            "name": done.name,
            "size": done.size_bytes,
            "sha256": done.sha256,
            "resumed": done.resumed_bytes,
            "repeated_chunks": done.repeated_chunks,
            "seconds": round(done.seconds, 3),
        }
        print(json.dumps(fields))
        return
    sent = done.size_bytes - done.resumed_bytes
    speed = output.size(sent / max(done.seconds, 1e-3))
    there = f", {output.size(done.resumed_bytes)} were there before" if done.resumed_bytes else ""
    print(
        f"{done.name} is at twin {options.twin}: {output.size(done.size_bytes)}"
        f" in {done.seconds:.1f} s, {speed}/s{there}"
    )


def _check(option: str, text: str | None, check: Callable[[str], object]) -> None:
    try:
        if text is not None:
            check(text)
    except RefusedError as error:
        raise UsageError(f"{option}: {error.message}") from None


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 86_400:
        raise argparse.ArgumentTypeError("must be from 1 to 86400 seconds")
    return found
