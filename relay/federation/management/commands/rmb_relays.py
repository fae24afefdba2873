"""`manage.py rmb_relays list|show|pause|letters|...`: other relays, and messages for them."""

from __future__ import annotations

import difflib
import json
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from proto.federation.domains import fold
from relay.access import actor, faces
from relay.federation import letter_verbs, live, services
from relay.federation.live import PartnerState
from relay.federation.models import RelayNode
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.ops.redis_client import client
from relay.ops.screen import amount, span
from relay.queues import keys

DESCRIPTION = """\
Show partner relays, and decide about them. Decisions take effect within a second.

  list              list relays: those with waiting messages and failures first, then the busiest
  show DOMAIN       show all data of one relay
  pause DOMAIN      stop sending to it; messages for it wait until they expire
  resume DOMAIN     send to it again, at once
  block DOMAIN      neither send to it nor accept messages from it
  unblock DOMAIN    end the block
  trust DOMAIN      accept its messages without the signatures of their twins
  untrust DOMAIN    require signatures again
  reset DOMAIN      end its back-off, forget its failures and try it now

`pause`, `block` and `trust` refuse a name that this relay does not know, because it may be
misspelt; --unknown accepts it.

Messages for partner relays; only headers are shown. ENTRY is the id that the lists show.

  waiting           list messages in the outbox, the oldest first
  letters           list dead letters (messages that failed permanently), the newest first; the
                    relay keeps them for a day
  letter ENTRY      show a message and each delivery attempt: time, relay, answer
  requeue ENTRY     send a dead letter again
  requeue-all DOMAIN  send the dead letters of a relay again, at most a thousand
  delete ENTRY      delete a dead letter

exit code: 0 done, 1 refused or failed, 2 usage, 3 saved and pending until Redis is back
"""

LISTED: Final = 50
DECISIONS: Final[dict[str, Callable[..., None]]] = {
    "pause": services.pause,
    "resume": services.resume,
    "block": services.block,
    "unblock": services.unblock,
    "trust": services.trust,
    "untrust": services.distrust,
    "reset": services.reset,
}
AHEAD: Final = ("pause", "block", "trust")
"""Decisions possible about a relay that is not known yet; the others take back earlier ones."""
DONE: Final = {
    "pause": "is paused",
    "resume": "is resumed",
    "block": "is blocked",
    "unblock": "is not blocked any more",
    "trust": "is trusted",
    "untrust": "is not trusted any more",
    "reset": "is tried again; its failures are reset",
}
HELP: Final = {
    "pause": "stop sending to a relay",
    "resume": "send to a relay again",
    "block": "neither send to a relay nor accept messages from it",
    "unblock": "end a block",
    "trust": "accept messages of a relay without signatures",
    "untrust": "require signatures again",
    "reset": "end the back-off of a relay and forget its failures",
}


class Command(RelayCommand):
    """One sub-command for each verb."""

    help = "Partner relays: their state, decisions about them, dead letters."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        lister = verbs.add_parser("list", help="list known relays")
        lister.add_argument("--limit", type=int, default=LISTED, help=f"default {LISTED}")
        lister.add_argument("--json", action="store_true", help="one JSON array")
        show = verbs.add_parser("show", help="show all data of one relay")
        show.add_argument("domain", help="domain of the relay")
        show.add_argument("--json", action="store_true", help="one JSON object")
        for verb in DECISIONS:
            decide = verbs.add_parser(verb, help=HELP[verb])
            decide.add_argument("domain", help="domain of the relay")
            decide.add_argument("--json", action="store_true", help="one JSON object")
            if verb in AHEAD:
                decide.add_argument(
                    "--unknown", action="store_true", help="accept a name this relay does not know"
                )
        letter_verbs.declare(verbs)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if "domain" in options:
            options["domain"] = fold(options["domain"])
        try:
            with faces.in_command():
                if verb == "list":
                    self._list(options)
                elif verb == "show":
                    self._show(options["domain"], options["json"])
                elif verb in DECISIONS:
                    self._decide(verb, options)
                else:
                    letter_verbs.VERBS[verb](self.stdout, self.stderr, options)
        except RedisError as error:
            raise CommandError(f"Redis does not answer: {error}") from None
        except DatabaseError as error:
            raise CommandError(f"the database does not answer: {error}") from None

    def _list(self, options: dict[str, Any]) -> None:
        services.discover()
        nodes = {node.domain: node for node in RelayNode.objects.all()[: services.MAX_NODES]}
        states = _states(list(nodes))
        ranked = sorted(
            states.values(), key=lambda each: (-each.held.messages, -each.failures, -each.sent)
        )[: max(0, options["limit"])]
        if options["json"]:
            documents = [_document(state, nodes[state.domain]) for state in ranked]
            self.stdout.write(json.dumps(documents, indent=2))
            return
        now = time.time()
        self.stdout.write("WAITING  OLDEST  FAILED  BACK-OFF   SENT  RECEIVED  LATENCY ms  RELAY")
        for state in ranked:
            self.stdout.write(_line(state, nodes[state.domain], now))
        self.stderr.write(f"{len(ranked)} of {len(nodes)} relays shown")

    def _show(self, domain: str, as_json: bool) -> None:
        node = RelayNode.objects.filter(domain=domain).first()
        if node is None and not client().sismember(keys.PARTNERS, domain):
            raise CommandError(f"relay {domain} is not known{_nearest(domain)}")
        document = _document(_states([domain])[domain], node)
        if as_json:
            self.stdout.write(json.dumps(document, indent=2))
            return
        for name, value in document.items():
            text = ", ".join(value) if isinstance(value, list) else value
            self.stdout.write(f"{name:<14} {'-' if text in ('', None) else shown(str(text))}")

    def _decide(self, verb: str, options: dict[str, Any]) -> None:
        domain, as_json = options["domain"], options["json"]
        if not options.get("unknown"):
            _require_known(domain, "; to decide in advance: --unknown" if verb in AHEAD else "")
        DECISIONS[verb](domain, actor=actor.of_command())
        self.require_in_force()
        if as_json:
            node = RelayNode.objects.filter(domain=domain).first()
            self.stdout.write(json.dumps(_document(_states([domain])[domain], node), indent=2))
        else:
            self.stdout.write(f"{domain} {DONE[verb]}")


def _require_known(domain: str, way_out: str) -> None:
    """Refuse a relay that is neither in the database nor met: its name may be misspelt."""
    if RelayNode.objects.filter(domain=domain).exists():
        return
    try:
        if client().sismember(keys.PARTNERS, domain):
            return
        nearest = _nearest(domain)
    except RedisError as error:
        raise CommandError(
            f"Redis does not answer, and relay {domain} is not in the database{way_out}: {error}"
        ) from None
    raise CommandError(f"relay {domain} is not known{nearest}{way_out}")


def _nearest(domain: str) -> str:
    services.discover()
    names = RelayNode.objects.values_list("domain", flat=True)[: services.MAX_NODES]
    found = difflib.get_close_matches(domain, names, n=1, cutoff=0.75)
    return f"; did you mean {found[0]}?" if found else ""


def _states(domains: list[str]) -> dict[str, PartnerState]:
    return live.read_partners(client(), domains, settings.RMB.federation.ranker_period_s)


def _document(state: PartnerState, node: RelayNode | None) -> dict[str, Any]:
    fields = asdict(state)
    del fields["held"]
    return {
        **fields,
        "kind": state.kind,
        "waiting": state.held.messages,
        "waiting_bytes": state.held.size_bytes,
        "flags": list(node.flags) if node else [],
        "note": node.note if node else "",
    }


def _line(state: PartnerState, node: RelayNode, now: float) -> str:
    oldest = span(now - state.oldest_at) if state.oldest_at else "-"
    backed_off = span(state.retry_at - now) if state.retry_at > now else "-"
    flags = f"  {', '.join(node.flags)}" if node.flags else ""
    return (
        f"{state.held.messages:>7} {oldest:>7} {state.failures:>7} {backed_off:>9} "
        f"{amount(state.sent):>6} {amount(state.received):>9} {state.latency_ms:>11.1f}  "
        f"{shown(state.domain)}{flags}"
    )
