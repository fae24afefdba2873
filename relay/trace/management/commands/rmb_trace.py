"""`manage.py rmb_trace start|stop|list|show|follow`: follow messages, on the command line."""

from __future__ import annotations

import contextlib
import json
import re
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandError

from relay.access.actor import of_command
from relay.access.faces import in_command
from relay.calls import remote
from relay.ops.command import RelayCommand
from relay.trace import bounds, services, texts
from relay.trace.events import Event, Stage
from relay.trace.exchange import ExchangeError, events_of
from relay.trace.models import TraceOrder
from relay.trace.services import Noted

DESCRIPTION = """\
Follow one message by its uid, or all messages of a twin or of one session. A trace shows when each
message was accepted, committed, delivered, acknowledged and removed, each try at a partner relay,
and why a message did not arrive. It contains headers only, never payloads.

  start uid UID         follow one message: its request, its answer and its errors
  start twin 7          follow all messages from and to a twin
  start session 7:phone follow all messages of one session; "7" is the one without an id
  stop TRACE            end a trace
  list                  list running and recent traces
  show UID              show the events of one message, from all processes
  follow TRACE          print events as they happen, until the trace ends; Ctrl-C ends only the view

A trace ends after ten minutes, or after the time of --for (at most an hour). Each process records
up to --rate events per second and only counts further ones; for a busy twin, --sample follows a
fraction of its messages. Events are kept for an hour.

To follow a message to a partner relay, start a trace at that relay too, export its events with
`show UID --json`, and display them together with those of this relay: `show UID --with FILE`.
"""

MAX_FILE_BYTES: Final = 64 << 20
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}


class Command(RelayCommand):
    """Command with one method for each sub-command."""

    help = "Follow messages: start, stop, list, show, follow."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        start = verbs.add_parser("start", help="follow a message, a twin or a session")
        start.add_argument("kind", choices=("uid", "twin", "session"), help="what to follow")
        start.add_argument("subject", help="the uid, the twin's id, or <twin>[:<session id>]")
        start.add_argument(
            "--for",
            dest="lifetime_s",
            type=_duration,
            default=bounds.LIFETIME_S,
            metavar="TIME",
            help="such as 30s, 10m (default) or 1h (longest)",
        )
        start.add_argument(
            "--sample",
            type=float,
            default=1.0,
            help="fraction of the messages, 0.0001 to 1 (default)",
        )
        start.add_argument(
            "--rate",
            type=int,
            default=bounds.EVENTS_PER_S,
            help=f"maximum events per second of each process (default %(default)s; up to "
            f"{bounds.MAX_EVENTS_PER_S})",
        )
        start.add_argument(
            "--unknown",
            action="store_true",
            help="accept an unknown twin, or a uid that is not a UUID",
        )
        start.add_argument("--follow", action="store_true", help="print the events as they happen")
        start.add_argument("--json", action="store_true", help="one JSON object a line")
        stop = verbs.add_parser("stop", help="end a trace now")
        stop.add_argument("trace", help="id of the trace, as `list` shows it")
        stop.add_argument("--json", action="store_true", help="one JSON object")
        lister = verbs.add_parser("list", help="list traces, the newest first")
        lister.add_argument("--json", action="store_true", help="one JSON array")
        show = verbs.add_parser("show", help="show the events of one message")
        show.add_argument("uid", help="uid of the message")
        show.add_argument("--trace", default="", help="only events of this trace")
        show.add_argument(
            "--with",
            dest="files",
            action="append",
            type=Path,
            default=[],
            metavar="FILE",
            help="file that `show --json` or `follow --json` of a partner relay wrote",
        )
        show.add_argument("--json", action="store_true", help="one JSON object")
        follow = verbs.add_parser("follow", help="print events as they happen")
        follow.add_argument("trace", help="id of the trace")
        follow.add_argument("--json", action="store_true", help="one JSON object a line")
        remote.add_options(follow)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        with in_command():
            getattr(self, f"_{verb}")(options)

    def _start(self, options: dict[str, Any]) -> None:
        row = services.start(
            options["kind"],
            options["subject"],
            actor=of_command(),
            lifetime_s=options["lifetime_s"],
            sample=options["sample"],
            events_per_s=options["rate"],
            unknown=options["unknown"],
        )
        (trace,) = services.look([row])
        if options["json"]:
            self.stdout.write(json.dumps(texts.trace_document(trace)))
        else:
            self.stdout.write(texts.trace_line(trace))
        if options["follow"]:
            self._follow({**options, "trace": row.id})

    def _stop(self, options: dict[str, Any]) -> None:
        row = services.stop(options["trace"], actor=of_command())
        if options["json"]:
            (trace,) = services.look([row])
            self.stdout.write(json.dumps(texts.trace_document(trace)))
        else:
            self.stdout.write(f"trace {row.id} has ended")

    def _list(self, options: dict[str, Any]) -> None:
        traces = services.look(TraceOrder.objects.all()[: bounds.MAX_ENDED_ROWS])
        if options["json"]:
            documents = [texts.trace_document(trace) for trace in traces]
            self.stdout.write(json.dumps(documents, indent=2))
            return
        for trace in traces:
            self.stdout.write(texts.trace_line(trace))
        running = sum(trace.state is services.State.RUNNING for trace in traces)
        self.stderr.write(f"{running} running")

    def _show(self, options: dict[str, Any]) -> None:
        more = [event for path in options["files"] for event in _events_of(path)]
        made = services.timeline(options["uid"], options["trace"], more)
        if options["json"]:
            self.stdout.write(json.dumps(texts.timeline_document(made), indent=2))
            return
        for line in texts.timeline_lines(made):
            self.stdout.write(line)

    def _follow(self, options: dict[str, Any]) -> None:
        if options.get("url"):
            self._follow_elsewhere(options)
            return
        with contextlib.suppress(KeyboardInterrupt):
            for page in services.follow(options["trace"]):
                for noted in page:
                    as_json = options["json"]
                    self.stdout.write(
                        texts.noted_line(noted) if as_json else texts.event_line(noted.event)
                    )
                self.stdout.flush()
        (trace,) = services.look([services.find(options["trace"])])
        self.stderr.write(texts.trace_line(trace))

    def _follow_elsewhere(self, options: dict[str, Any]) -> None:
        """Follow a trace of another relay, through its operator site."""
        params = {"trace": options["trace"]}
        stream = remote.RemoteStream(options, "followTrace", params)
        with contextlib.suppress(KeyboardInterrupt), stream:
            for item in stream:
                if item.pop("event", "") == "end":
                    break
                cursor = item.pop("cursor")
                noted = Noted(cursor, Event(**{**item, "stage": Stage(item["stage"])}))
                as_json = options["json"]
                self.stdout.write(
                    texts.noted_line(noted) if as_json else texts.event_line(noted.event)
                )
                self.stdout.flush()


def _duration(text: str) -> int:
    match = re.fullmatch(r"(\d{1,6})([smh]?)", text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a time such as 30s, 10m or 1h")
    return int(match[1]) * _UNITS[match[2]]


def _events_of(path: Path) -> list[Event]:
    """Read the events in a file of another relay: a timeline, or one object per line."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise CommandError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return events_of(content)
    except ExchangeError as error:
        raise CommandError(f"{path} {error}") from None
