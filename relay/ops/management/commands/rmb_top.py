"""`manage.py rmb_top`: what the relay does, live in the terminal."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import sys
import termios
import time
import tty
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import CommandError
from redis.exceptions import RedisError

from relay.calls import remote
from relay.ops import counters, screen
from relay.ops.command import RelayCommand
from relay.ops.load import Snapshot, look, rates, total
from relay.ops.redis_client import client

DESCRIPTION = """\
Show live figures of the relay: messages and bytes per second, sessions, commits, dropped messages
with reasons, workers, partner relays with waiting messages, and the chain. Press `q` or Ctrl-C to
quit.

Workers publish figures once a second; a shorter interval shows nothing new. Latencies are the upper
bounds of histogram buckets.

With --url the command shows a relay elsewhere, through its operator site, once a second at most.

With --count or --json, or if standard output is not a terminal, the command prints plain lines.
"""

_CLEAR: Final = "\x1b[H\x1b[2J"
_ALTERNATE: Final = "\x1b[?1049h\x1b[?25l"
_MAIN: Final = "\x1b[?25h\x1b[?1049l"


class _Here:
    """The relay whose Redis this command reads."""

    @property
    def title(self) -> str:
        return ", ".join(settings.RMB.relay.domains)

    def look(self) -> Snapshot:
        return look(client())


class _Elsewhere:
    """A relay whose operator site this command queries."""

    def __init__(self, stream: remote.RemoteStream, url: str) -> None:
        self.title = urlsplit(url).hostname or url
        self._stream = stream

    def look(self) -> Snapshot:
        document = self._stream.newest()
        document.pop("event", None)
        try:
            return counters.snapshot(document)
        except (TypeError, KeyError):
            raise CommandError("the relay is of another release") from None


class Command(RelayCommand):
    """Draw figures until the user quits."""

    _source: _Here | _Elsewhere = _Here()

    help = "Show live figures of the relay in the terminal."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument(
            "--interval", type=_seconds, default=2.0, help="seconds between two readings (2)"
        )
        parser.add_argument("--count", type=_count, help="print this many readings, then end")
        parser.add_argument("--json", action="store_true", help="one JSON object per reading")
        remote.add_options(parser)

    def handle(self, *args: Any, interval: float, count: int | None, **options: Any) -> None:
        drawn = sys.stdout.isatty() and sys.stdin.isatty()
        with contextlib.ExitStack() as stack:
            if options["url"]:
                call = remote.RemoteStream(options, "followCounters", {})
                self._source = _Elsewhere(stack.enter_context(call), options["url"])
            self._show(interval, count, options["json"], drawn)

    def _show(self, interval: float, count: int | None, as_json: bool, drawn: bool) -> None:
        try:
            if as_json or count or not drawn:
                self._print(interval, count or 1, as_json)
            else:
                self._draw(interval)
        except KeyboardInterrupt:
            return
        except RedisError as error:
            raise CommandError(f"redis does not answer: {error}") from None

    def _print(self, interval: float, count: int, as_json: bool) -> None:
        before = self._source.look()
        for _ in range(count):
            time.sleep(interval)
            after = self._source.look()
            if as_json:
                self.stdout.write(json.dumps(_document(before, after)))
            else:
                lines = screen.lines(before, after, self._source.title, time.time())
                self.stdout.write("\n".join(lines) + "\n")
            self.stdout.flush()
            before = after

    def _draw(self, interval: float) -> None:
        with _own_screen():
            before = after = self._source.look()
            note = ""
            while True:
                size = shutil.get_terminal_size()
                lines = screen.lines(before, after, self._source.title, time.time())
                shown = screen.fit([*lines, note], size.columns, size.lines)
                sys.stdout.write(_CLEAR + "\r\n".join(shown).rstrip())
                sys.stdout.flush()
                if _asked_to_stop(interval):
                    return
                try:
                    before, after, note = after, self._source.look(), ""
                except RedisError as error:
                    # Redis may come back: the old figures stay, with a note.
                    note = f"redis does not answer: {error}; the figures above are old"


def _document(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    each = rates(before, after)
    return {
        "at": round(time.time(), 3),
        "total": asdict(total(before, after)),
        "sessions": sum(worker.all_sessions for worker in after.workers),
        "redis_bytes": after.redis_bytes,
        "workers": [
            {
                "boot_id": worker.boot_id,
                "host": worker.host,
                "slot": worker.slot,
                "state": worker.state,
                "sessions": worker.all_sessions,
                "loop_lag_ms": worker.loop_lag_ms,
                "rates": asdict(each[worker.boot_id]) if worker.boot_id in each else None,
            }
            for worker in after.workers
        ],
        "relays": [
            {"domain": partner.domain, "waiting": partner.held.messages, "sent": partner.sent}
            for partner in after.partners
        ],
    }


@contextlib.contextmanager
def _own_screen() -> Iterator[None]:
    """Use the terminal's alternate screen, and keys without Enter; restore both however it ends."""
    before = termios.tcgetattr(sys.stdin)
    sys.stdout.write(_ALTERNATE)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        sys.stdout.write(_MAIN)
        sys.stdout.flush()


def _asked_to_stop(wait_s: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q", "")


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        raise ArgumentTypeError(f"{value!r} is not a number of seconds") from None
    if not 0.5 <= seconds <= 3600:
        raise ArgumentTypeError("must be from 0.5 to 3600 seconds")
    return seconds


def _count(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 1_000_000:
        raise ArgumentTypeError("must be from 1 to 1000000")
    return int(value)
