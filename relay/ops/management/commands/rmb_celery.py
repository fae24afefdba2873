"""`manage.py rmb_celery status|failed|retry|forget`: background work."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import asdict
from typing import Any

from relay.access import actor, faces
from relay.ops import tasks_services
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.ops.screen import span

DESCRIPTION = """\
Background work: deliveries to partner relays, following and importing the chain, alarms.

  status     show each queue, whether a worker serves it, and the running tasks
  failed     list tasks that ended with an unexpected error, the newest first
  retry ID   start a failed task again
  forget ID  remove a failed task from the list

A task does not fail because a partner relay or a node of the chain is unreachable: it ends, and the
schedule starts it again. Only one task of each kind runs at a time, so `retry` is safe: a second
one ends at once. If a process dies, the schedule starts its tasks again within seconds; the message
broker lists the lost ones as unacknowledged for an hour.

exit code: 0 done, all queues served; 1 a queue not served, or refused or failed; 2 usage
"""


class Command(RelayCommand):
    """One sub-command for each action."""

    help = "Background work: status, failed, retry, forget."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        status = verbs.add_parser("status", help="show queues and running tasks")
        failed = verbs.add_parser("failed", help="list the latest failures")
        failed.add_argument("--limit", type=int, default=50, help="default 50")
        retry = verbs.add_parser("retry", help="start a failed task again")
        forget = verbs.add_parser("forget", help="remove a failed task from the list")
        for changer in (retry, forget):
            changer.add_argument("id", help="id that `failed` shows")
        for each in (status, failed, retry, forget):
            each.add_argument("--json", action="store_true", help="as JSON")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        with faces.in_command():
            if verb == "status":
                self._status(options["json"])
            elif verb == "failed":
                self._failed(options)
            elif verb == "retry":
                task = tasks_services.retry(options["id"], actor=actor.of_command())
                document = {"id": options["id"], "task": task}
                self._done(document, f"{task} is started again", options)
            else:
                tasks_services.forget(options["id"], actor=actor.of_command())
                self._done({"id": options["id"]}, "forgotten", options)

    def _done(self, document: dict[str, Any], told: str, options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(document, indent=2) if options["json"] else told)

    def _status(self, as_json: bool) -> None:
        queues, running = tasks_services.queues(), tasks_services.running()
        if as_json:
            document = {
                "queues": [asdict(queue) for queue in queues],
                "running": [asdict(task) for task in running],
                "unacknowledged": tasks_services.unacknowledged(),
            }
            self.stdout.write(json.dumps(document, indent=2))
        else:
            now = time.time()
            for queue in queues:
                oldest = "" if queue.oldest_s is None else f", the first {span(queue.oldest_s)} ago"
                taken = "" if queue.taken else "; NO WORKER serves this queue"
                self.stdout.write(f"{queue.name:<11} {queue.waiting} wait{oldest}{taken}")
            for task in running:
                what = shown(f"{task.task}({task.arguments})  in {task.worker}")
                self.stdout.write(f"runs {span(now - task.since):>4}  {what}")
            self.stderr.write(f"{len(running)} tasks run")
        if not all(queue.taken for queue in queues):
            raise SystemExit(1)

    def _failed(self, options: dict[str, Any]) -> None:
        known = tasks_services.failed()
        failures = known[: max(0, options["limit"])]
        if options["json"]:
            self.stdout.write(json.dumps([asdict(failure) for failure in failures], indent=2))
            return
        now = time.time()
        for failure in failures:
            what = shown(f"{failure.task}  {failure.id}")
            self.stdout.write(f"{span(now - failure.at):>4} ago  {what}")
            self.stdout.write(f"          {shown(failure.error)}")
        self.stderr.write(f"{len(failures)} of {len(known)} failures shown")
