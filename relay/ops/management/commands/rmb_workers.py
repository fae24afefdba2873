"""`manage.py rmb_workers list|drain`: the relay's worker processes."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import asdict
from typing import Any

from relay.access import actor, faces
from relay.ops import services
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.ops.screen import amount, span
from relay.ops.services import WorkerRow
from relay.ops.wording import counted

DESCRIPTION = """\
Worker processes of the relay, on all hosts that share this Redis.

  list           list workers: state, sessions, loop lag, commit times of the last minute, memory
  drain BOOT_ID  stop a worker gracefully: its clients reconnect to other workers, and its
                 supervisor starts a new worker

The state is `ok`, `silent` if the worker missed its last heartbeats, or the reason why it is not
ready. The boot id identifies one process; the process that replaces it has another boot id.

exit code: 0 done, 1 there is no such worker or Redis does not answer, 2 usage
"""


class Command(RelayCommand):
    """One sub-command for each action."""

    help = "The relay's worker processes: list, drain."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        lister = verbs.add_parser("list", help="list workers")
        lister.add_argument("--json", action="store_true", help="one JSON array")
        drain = verbs.add_parser("drain", help="stop a worker gracefully")
        drain.add_argument("boot_id", help="boot id that `list` shows")
        drain.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        with faces.in_command():
            if verb == "drain":
                services.drain(options["boot_id"], actor=actor.of_command())
                document = {"boot_id": options["boot_id"]}
                told = f"worker {options['boot_id']} drains"
                self.stdout.write(json.dumps(document, indent=2) if options["json"] else told)
                return
            workers = services.list_workers()
        if options["json"]:
            self.stdout.write(json.dumps([asdict(worker) for worker in workers], indent=2))
            return
        self.stdout.write(
            "WORKER            STATE     SESSIONS   LAG ms  COMMIT p50/p99 ms  MEMORY   UP  BOOT ID"
        )
        for worker in workers:
            self.stdout.write(shown(_line(worker)))
        self.stderr.write(counted(len(workers), "worker"))


def _line(worker: WorkerRow) -> str:
    commits = f"{_milliseconds(worker.commit_p50_ms)}/{_milliseconds(worker.commit_p99_ms)}"
    return (
        f"{f'{worker.host}/{worker.slot}'[:17]:<17} {worker.state[:9]:<9} {worker.all_sessions:>8} "
        f"{worker.loop_lag_ms:>8.1f} {commits:>18} {amount(worker.memory_bytes):>6}B "
        f"{span(worker.uptime_s):>4}  {worker.boot_id}"
    )


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
