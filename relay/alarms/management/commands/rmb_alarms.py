"""`manage.py rmb_alarms`: alarms on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.utils import timezone

from relay.access import faces
from relay.access.actor import of_command
from relay.alarms import documents, figures, receivers, runbook, services
from relay.alarms.models import Alarm, AlarmEvent, Delivery, Receiver, Silence, State
from relay.alarms.rules import RULES, Severity
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.ops.wording import counted

DESCRIPTION = """\
Show and handle alarms, and manage their rules and receivers.

  list                          firing, acknowledged and silenced alarms (--all: ended ones too)
  show ALARM                    one alarm and its runbook
  ack ALARM [--note TEXT]       acknowledge an alarm
  unack ALARM                   withdraw the acknowledgement
  silence RULE [SUBJECT] --for 2h   send no notices of these alarms; * and ? are wildcards
  silences                      list silences
  unsilence SILENCE             end a silence
  rules [RULE]                  thresholds, hold times, and readings that are missing now
  set RULE --threshold N ...    change a rule; --off disables it, --on enables it
  set RULE --default            reset a rule to its defaults
  receivers                     receivers of notices and their last errors
  receiver-add NAME TARGET      add a webhook (https://...) or an e-mail address
  receiver-remove RECEIVER      remove a receiver
  test RECEIVER                 send a test notice and print the answer
  history                       changes of alarms, the newest first
  notices                       notices to receivers, the newest first
  runbook                       runbook of all rules, as Markdown

exit code: 0 done, 1 refused or failed, or an alarm fires (list --check), 2 usage
"""

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_LISTED: Final = 1000


ARGUMENTS = {
    "alarm": "number of an alarm, as `list` shows it",
    "rule": "name of a rule, as `rules` shows it",
    "silence": "number of a silence, as `silences` shows it",
    "name": "name of the receiver",
    "target": "https:// address of a webhook, or an e-mail address",
    "receiver": "number of a receiver, as `receivers` shows it",
}


class Command(RelayCommand):
    """Command with one method for each sub-command."""

    help = "Alarms: list, show, ack, silence, rules, receivers, test, history."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)

        def verb(name: str, text: str, *arguments: str) -> ArgumentParser:
            added = verbs.add_parser(name, help=text)
            for argument in arguments:
                added.add_argument(argument, help=ARGUMENTS[argument])
            added.add_argument("--json", action="store_true", help="print JSON")
            return added

        lister = verb("list", "list alarms")
        lister.add_argument("--all", action="store_true", help="pending and resolved ones too")
        lister.add_argument("--check", action="store_true", help="exit code 1 if an alarm fires")
        verb("show", "show an alarm and its runbook", "alarm")
        ack = verb("ack", "acknowledge an alarm", "alarm")
        verb("unack", "withdraw an acknowledgement", "alarm")
        silence = verb("silence", "send no notices of some alarms for a time", "rule")
        silence.add_argument("subject", nargs="?", default="*", help="default: all subjects")
        silence.add_argument("--for", dest="span", required=True, help="such as 30m, 2h, 7d")
        for noted in (ack, silence):
            noted.add_argument("--note", default="", help="text for other operators")
        verb("unsilence", "end a silence", "silence")
        verb("silences", "list silences")
        rules = verb("rules", "list rules with thresholds and hold times")
        rules.add_argument("rule", nargs="?", help="only this rule")
        setter = verb("set", "change a rule", "rule")
        setter.add_argument("--threshold", type=float, help="value at which the alarm fires")
        setter.add_argument("--clear", type=float, help="value at which the alarm ends")
        setter.add_argument(
            "--hold",
            type=float,
            dest="hold_s",
            help="seconds beyond the threshold until the alarm fires",
        )
        switch = setter.add_mutually_exclusive_group()
        switch.add_argument("--off", action="store_true", help="disable the rule")
        switch.add_argument("--on", action="store_true", help="enable the rule")
        switch.add_argument("--default", action="store_true", help="reset the rule to its defaults")
        verb("receivers", "list receivers")
        add = verb("receiver-add", "add a receiver", "name", "target")
        add.add_argument(
            "--min-severity",
            choices=[*map(str, Severity)],
            default=Severity.WARNING,
            help=f"lowest severity to send (default {Severity.WARNING})",
        )
        add.add_argument(
            "--secret-file", help="file with the secret of a webhook (default: generate one)"
        )
        verb("receiver-remove", "remove a receiver", "receiver")
        verb("test", "send a test to a receiver", "receiver")
        verb("runbook", "print all rules as Markdown")
        for name, text in (("history", "list changes of alarms"), ("notices", "list notices")):
            verb(name, text).add_argument(
                "--limit", type=int, default=50, help="maximum number of rows (default 50)"
            )

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        act: Callable[[dict[str, Any]], None] = getattr(self, f"_{verb.replace('-', '_')}")
        try:
            with faces.in_command():
                act(options)
        except DatabaseError as error:
            raise CommandError(f"the database does not answer: {error}") from None

    # --- alarms -------------------------------------------------------------------------------

    def _list(self, options: dict[str, Any]) -> None:
        alarms = Alarm.objects.all()
        if not options["all"]:
            alarms = alarms.exclude(state__in=(State.PENDING, State.RESOLVED))
        found = list(alarms[:MAX_LISTED])
        if options["json"]:
            self._print([documents.alarm(each) for each in found])
        else:
            for each in found:
                self.stdout.write(
                    f"{each.pk:>5}  {each.state:<12} {each.severity:<8} "
                    f"{each.since:%Y-%m-%d %H:%M}  {shown(f'{each}: {each.detail or each.value}')}"
                )
            complaint = figures.complaint()
            if complaint:
                self.stderr.write(shown(complaint))
            if not found:
                self.stderr.write("no alarm fires")
        if options["check"] and any(each.active for each in found):
            raise CommandError(f"firing: {counted(sum(each.active for each in found), 'alarm')}")

    def _show(self, options: dict[str, Any]) -> None:
        alarm = services.get_alarm(_number("ALARM", options["alarm"]))
        self._document(documents.alarm(alarm), options)

    def _ack(self, options: dict[str, Any]) -> None:
        alarm_id = _number("ALARM", options["alarm"])
        alarm = services.acknowledge(alarm_id, actor=of_command(), note=options["note"])
        self._done(documents.alarm(alarm), f"{alarm} is acknowledged", options)

    def _unack(self, options: dict[str, Any]) -> None:
        alarm = services.unacknowledge(_number("ALARM", options["alarm"]), actor=of_command())
        self._done(documents.alarm(alarm), f"{alarm} is not acknowledged any more", options)

    # --- silences -----------------------------------------------------------------------------

    def _silence(self, options: dict[str, Any]) -> None:
        until = timezone.now() + _span(options["span"])
        made = services.silence(
            options["rule"],
            options["subject"],
            until=until,
            note=options["note"],
            actor=of_command(),
        )
        text = f"silence {made.pk}: {made} until {until:%Y-%m-%d %H:%M} UTC"
        self._done(documents.silence(made), text, options)

    def _unsilence(self, options: dict[str, Any]) -> None:
        number = _number("SILENCE", options["silence"])
        services.end_silence(number, actor=of_command())
        self._done({"id": number}, f"silence {number} has ended", options)

    def _silences(self, options: dict[str, Any]) -> None:
        found = list(Silence.objects.filter(until__gt=timezone.now()))
        if options["json"]:
            self._print([documents.silence(each) for each in found])
            return
        for each in found:
            until = f"{each.until:%Y-%m-%d %H:%M}"
            what = shown(f"{each}  {each.by}: {each.note}")
            self.stdout.write(f"{each.pk:>5}  until {until}  {what}")

    # --- rules --------------------------------------------------------------------------------

    def _rules(self, options: dict[str, Any]) -> None:
        if options["rule"]:
            self._document(documents.rule(services.get_rule(options["rule"])), options)
            return
        found = services.list_rules()
        if options["json"]:
            self._print([documents.rule(each) for each in found])
            return
        for each in found:
            rule, limits = each.rule, each.limits
            compared = ">=" if limits.rising else "<="
            bound = f"{compared} {limits.threshold:g} {rule.unit}" if rule.unit else ""
            notes = [
                *(["changed"] if each.changed else []),
                *([] if each.enabled else ["OFF"]),
                *([f"UNKNOWN: {shown(each.error)}"] if each.error else []),
            ]
            self.stdout.write(
                f"{rule.key:<20} {rule.severity:<8} {bound:<18} for {limits.hold_s:>4g} s  "
                f"{rule.title}{'  ' if notes else ''}{', '.join(notes)}"
            )

    def _set(self, options: dict[str, Any]) -> None:
        before = services.get_rule(options["rule"])
        fields: dict[str, Any] = {
            name: options[name]
            for name in ("threshold", "clear", "hold_s")
            if options[name] is not None
        }
        if options["default"] and fields:
            raise CommandError(
                "use --default without other options: it resets the rule", returncode=2
            )
        if options["on"] or options["off"]:
            fields["enabled"] = options["on"]
        if not fields and not options["default"]:
            raise CommandError(
                "nothing to change: use --threshold, --hold, --on, --off or --default", returncode=2
            )
        if not options["default"]:
            fields = {**services.override_of(before.rule.key)._asdict(), **fields}
        after = services.set_rule(before.rule.key, actor=of_command(), **fields)
        self._document(documents.rule(after), options)

    def _runbook(self, options: dict[str, Any]) -> None:
        if options["json"]:
            self._print({rule.key: rule.runbook_text for rule in RULES})
        else:
            self.stdout.write(runbook.markdown(), ending="")

    # --- receivers ----------------------------------------------------------------------------

    def _receivers(self, options: dict[str, Any]) -> None:
        found = list(Receiver.objects.all())
        waiting = receivers.waiting_by_receiver(found)
        if options["json"]:
            self._print([documents.receiver(each, waiting[each.pk]) for each in found])
            return
        for each in found:
            state = "off" if not each.enabled else each.last_error or "ok"
            self.stdout.write(
                f"{each.pk:>4}  {shown(each.name):<20} {receivers.shown_target(each)}  from "
                f"{each.min_severity}  {waiting[each.pk]} wait  {shown(state)}"
            )

    def _receiver_add(self, options: dict[str, Any]) -> None:
        target = options["target"]
        secret = _secret(options["secret_file"]) if options["secret_file"] else ""
        added = receivers.add_receiver(
            options["name"],
            "webhook" if "://" in target else "email",
            target,
            secret=secret,
            min_severity=options["min_severity"],
            actor=of_command(),
        )
        document = {**documents.receiver(added.receiver, 0), "secret": added.secret}
        text = f"receiver {added.receiver.pk}: {added.receiver.name}"
        if added.secret and not secret:
            text += f"\nsecret of its signatures, shown this once: {added.secret}"
        self._done(document, text, options)

    def _receiver_remove(self, options: dict[str, Any]) -> None:
        receiver = receivers.find_receiver(options["receiver"])
        number = receiver.pk
        receivers.remove_receiver(number, actor=of_command())
        self._done({"id": number}, f"{receiver.name} is removed and gets no more notices", options)

    def _test(self, options: dict[str, Any]) -> None:
        receiver = receivers.find_receiver(options["receiver"])
        answer = receivers.send_test(receiver.pk, actor=of_command())
        if options["json"]:
            self._print(answer._asdict())
        elif answer.ok:
            self.stdout.write(f"{receiver.name} accepted the test: {answer.text}")
        if not answer.ok:
            raise CommandError(f"{receiver.name} did not accept the test: {answer.text}")

    # --- history ------------------------------------------------------------------------------

    def _history(self, options: dict[str, Any]) -> None:
        found = list(AlarmEvent.objects.all()[: _limit(options)])
        if options["json"]:
            self._print([documents.event(each) for each in found])
            return
        for each in found:
            about = f"{each.rule} {each.subject}".strip()
            by = f" by {each.by}" if each.by else ""
            at = f"{each.at:%Y-%m-%d %H:%M:%S}"
            self.stdout.write(f"{at}  {each.kind:<14} {shown(f'{about}{by}  {each.detail}')}")

    def _notices(self, options: dict[str, Any]) -> None:
        found = list(Delivery.objects.select_related("receiver")[: _limit(options)])
        if options["json"]:
            self._print([documents.delivery(each) for each in found])
            return
        for each in found:
            alarm = each.body["alarm"]
            what = shown(
                f"{each.receiver.name}: {each.body['type']} {alarm['rule']} {alarm['subject']}  "
                f"{each.tries} tries  {each.error}"
            )
            self.stdout.write(f"{each.created:%Y-%m-%d %H:%M:%S}  {each.outcome:<9} {what}")

    # --- printing -----------------------------------------------------------------------------

    def _print(self, document: Any) -> None:
        self.stdout.write(json.dumps(document, indent=2, default=str))

    def _done(self, document: Any, text: str, options: dict[str, Any]) -> None:
        if options["json"]:
            self._print(document)
        else:
            self.stdout.write("\n".join(map(shown, text.split("\n"))))

    def _document(self, document: dict[str, Any], options: dict[str, Any]) -> None:
        if options["json"]:
            self._print(document)
            return
        runbook = document.pop("runbook", "")
        for name, value in document.items():
            if value not in (None, ""):
                self.stdout.write(f"{name:<16} {shown(str(value))}")
        if runbook:
            self.stdout.write(f"\n{runbook}")


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise CommandError(f"{name}: must be a number", returncode=2)
    return int(text)


def _limit(options: dict[str, Any]) -> int:
    wanted: int = options["limit"]
    return max(1, min(MAX_LISTED, wanted))


def _span(text: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or len(number) > 6:
        raise CommandError("--for: must be a time such as 30m, 2h or 7d", returncode=2)
    return timedelta(seconds=int(number) * UNITS[unit])


def _secret(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--secret-file: {error}", returncode=2) from None
