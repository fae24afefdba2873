"""The verbs of `rmb_relays` for messages to partner relays.

A message in the outbox is named `<shard>/<entry>`, a dead letter by its entry alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.access import actor
from relay.access.errors import Invalid, NotFound
from relay.federation import letters, services
from relay.federation.letters import Letter
from relay.ops.printable import shown
from relay.ops.redis_client import client
from relay.ops.screen import amount, span
from relay.ops.wording import counted
from relay.queues import headers, keys

LISTED: Final = 20

Verb = Callable[[OutputWrapper, OutputWrapper, dict[str, Any]], None]


def declare(verbs: Any) -> None:
    """Add the verbs to the parser of the command."""
    for name, told in (
        ("waiting", "list messages in the outbox"),
        ("letters", "list dead letters"),
    ):
        lister = verbs.add_parser(name, help=told)
        most = letters.MAX_SHOWN
        lister.add_argument(
            "--limit", type=int, default=LISTED, help=f"default {LISTED}, at most {most}"
        )
        lister.add_argument(
            "--after", default="", metavar="ENTRY", help="continue after this entry"
        )
        lister.add_argument("--json", action="store_true", help="one JSON array")
    for name, told in (
        ("letter", "show a message and each delivery attempt"),
        ("requeue", "send a dead letter again"),
        ("delete", "delete a dead letter"),
    ):
        verb = verbs.add_parser(name, help=told)
        verb.add_argument("entry", help="id that the lists show")
        verb.add_argument("--json", action="store_true", help="one JSON object")
    verb = verbs.add_parser("requeue-all", help="send the dead letters of a relay again")
    verb.add_argument("domain", help="domain of the relay")
    verb.add_argument("--json", action="store_true", help="one JSON object")


def _list_waiting(out: OutputWrapper, hints: OutputWrapper, options: dict[str, Any]) -> None:
    after = None
    if options["after"]:
        shard, entry = _waiting("after", options["after"])
        after = (entry, shard)
    _list(letters.pending(client(), after, _limit(options)), out, hints, options)


def _list_dead(out: OutputWrapper, hints: OutputWrapper, options: dict[str, Any]) -> None:
    before = _entry("after", options["after"]) if options["after"] else ""
    _list(letters.dead(client(), before, _limit(options)), out, hints, options)


def _show(out: OutputWrapper, hints: OutputWrapper, options: dict[str, Any]) -> None:
    if "/" in options["entry"]:
        shard, entry = _waiting("entry", options["entry"])
        found = letters.pending_one(client(), shard, entry)
    else:
        found = letters.dead_one(client(), _entry("entry", options["entry"]))
    if found is None:
        raise NotFound("message not found; it may be delivered or deleted")
    if options["json"]:
        out.write(json.dumps(_document(found), indent=2))
        return
    for name, value in _document(found).items():
        if name != "tries":
            out.write(f"{name:<11} {shown(str(value)) if value not in ('', 0) else '-'}")
    for each in found.tries:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(each.at))
        out.write(
            f"tried       {at}  {each.ms:>8.1f} ms  {shown(each.relay)}: {shown(each.answer)}"
        )


def _requeue(out: OutputWrapper, hints: OutputWrapper, options: dict[str, Any]) -> None:
    again = services.requeue(options["entry"], actor=actor.of_command())
    document = {"entry": options["entry"], "outbox": again}
    told = f"{options['entry']} is in the outbox again, as {again}"
    out.write(json.dumps(document, indent=2) if options["json"] else told)


def _requeue_all(out: OutputWrapper, hints: OutputWrapper, options: dict[str, Any]) -> None:
    domain = options["domain"]
    count = services.requeue_all(domain, actor=actor.of_command())
    told = f"in the outbox again: {counted(count, 'message')} for {domain}"
    out.write(json.dumps({"domain": domain, "count": count}, indent=2) if options["json"] else told)
    if count == services.MAX_REQUEUED:
        hints.write("there may be more: run the command again")


def _delete(out: OutputWrapper, hints: OutputWrapper, options: dict[str, Any]) -> None:
    services.delete_letter(options["entry"], actor=actor.of_command())
    told = f"{options['entry']} is deleted"
    out.write(json.dumps({"entry": options["entry"]}, indent=2) if options["json"] else told)


VERBS: Final[dict[str, Verb]] = {
    "waiting": _list_waiting,
    "letters": _list_dead,
    "letter": _show,
    "requeue": _requeue,
    "requeue-all": _requeue_all,
    "delete": _delete,
}


def _list(
    found: list[Letter], out: OutputWrapper, hints: OutputWrapper, options: dict[str, Any]
) -> None:
    if options["json"]:
        out.write(json.dumps([_document(letter) for letter in found], indent=2))
        return
    now = time.time()
    out.write("   AGE     SIZE  TRIES  FOR                   WHAT")
    for letter in found:
        what = "  ".join(
            filter(None, (_name(letter), letter.why, f"{letter.source} > {letter.destination}",
                          letter.kind, letter.command, letter.uid))
        )  # fmt: skip
        out.write(
            f"{span(now - letter.at):>6} {amount(letter.size_bytes):>7}B {len(letter.tries):>6}  "
            f"{shown(letter.account, 20):<20}  {shown(what)}"
        )
    more = len(found) == options["limit"]
    hints.write(f"there may be more: --after {_name(found[-1])}" if more else "no more")


def _name(letter: Letter) -> str:
    return letter.entry if letter.why else f"{letter.shard}/{letter.entry}"


def _document(letter: Letter) -> dict[str, Any]:
    return {"name": _name(letter), **asdict(letter)}


def _limit(options: dict[str, Any]) -> int:
    limit: int = options["limit"]
    if not 1 <= limit <= letters.MAX_SHOWN:
        raise Invalid(fields={"limit": f"must be between 1 and {letters.MAX_SHOWN}"})
    return limit


def _entry(field: str, text: str) -> str:
    if not headers.is_entry(text):
        raise Invalid(fields={field: "is not the id of a message"})
    return text


def _waiting(field: str, text: str) -> tuple[int, str]:
    shard, _, entry = text.partition("/")
    if shard not in map(str, range(keys.OUTBOX_SHARDS)):
        raise Invalid(fields={field: "is not <shard>/<id> of a message"})
    return int(shard), _entry(field, entry)
