"""`manage.py rmb_chain status|import|twin`: the chain as this relay sees it."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from chain.errors import ChainError
from chain.rotation import Found, Rotation
from proto.chain import relays
from proto.identity import ss58
from relay.access import actor, faces
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.ops.redis_client import client
from relay.twins import chain_import, chain_services, chain_state
from relay.twins.chain_state import ChainState, Import
from relay.twins.fields import FieldError, parse_account, parse_id
from relay.twins.models import Twin

NOT_FOLLOWED = 1

DESCRIPTION = """\
Show how this relay follows the chain, and look twins up.

  status          show the node in use, its block, and the state of the import; exit code 0 if the
                  relay follows the chain, 1 if it does not
  import          copy all twins of the chain to the database, or continue an interrupted import;
                  the relay does this itself after it may have missed changes
  twin ID|ACCOUNT look one twin up on the chain and in the database

The setting substrate.urls lists the nodes. The relay need not run.
"""


class Command(RelayCommand):
    """Command with one method for each sub-command."""

    help = "The chain as this relay sees it: status, import, look-up of one twin."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        status = verbs.add_parser("status", help="show node, height, lag, follower and import")
        status.add_argument("--json", action="store_true", help="one JSON object")
        importer = verbs.add_parser("import", help="read all twins of the chain")
        importer.add_argument("--json", action="store_true", help="one JSON object")
        twin = verbs.add_parser("twin", help="look one twin up")
        twin.add_argument("who", help="twin id, ss58 address, or 0x and 64 hexadecimal digits")
        twin.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        actions: dict[str, Callable[[dict[str, Any]], None]] = {
            "status": self._status,
            "import": self._import,
            "twin": self._twin,
        }
        try:
            with faces.in_command():
                actions[verb](options)
        except FieldError as error:
            raise CommandError(str(error)) from None
        except ChainError as error:
            raise CommandError(f"chain: {error}") from None
        except RedisError as error:
            raise CommandError(f"redis: {error}") from None
        except DatabaseError as error:
            raise CommandError(f"database: {error}") from None

    def _status(self, options: dict[str, Any]) -> None:
        state, now = chain_state.read(client()), time.time()
        complaint = state.following.complaint(now)
        mirrored = Twin.objects.filter(source=Twin.Source.CHAIN).count()
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(state, complaint, mirrored, now), indent=2))
        else:
            lines = _as_lines(state, complaint, mirrored, now)
            self.stdout.write("\n".join(map(shown, lines)))
        if complaint:
            sys.exit(NOT_FOLLOWED)

    def _import(self, options: dict[str, Any]) -> None:
        before = chain_services.want_import(actor=actor.of_command())
        if before.state in ("running", "waiting"):
            self.stderr.write(f"continuing after {before.twins} twins")
        if chain_import.import_twins(self._show_progress):
            done = chain_services.status().imported
            told = f"{done.twins} twins imported"
            self.stdout.write(json.dumps(asdict(done), indent=2) if options["json"] else told)
            return
        imported = chain_state.read(client()).imported
        if imported.error:
            raise CommandError(f"chain: {imported.error}")
        raise CommandError("another import is running: see rmb_chain status")

    def _show_progress(self, imported: Import) -> None:
        self.stderr.write(
            f"{imported.twins} twins read; the newest has the id {imported.newest_id}"
        )

    def _twin(self, options: dict[str, Any]) -> None:
        rotation = Rotation(settings.RMB.substrate.urls)
        try:
            found = _look_up(rotation, options["who"].strip())
            url = rotation.url
        finally:
            rotation.close()
        if found is None:
            raise CommandError(f"the chain at {url} has no such twin")
        fields = _twin_fields(found)
        row = Twin.objects.filter(id=found.twin.id).first()
        if options["json"]:
            self.stdout.write(json.dumps(fields, indent=2))
            return
        for name, value in fields.items():
            self.stdout.write(f"{name:<9} {'-' if value is None else shown(str(value))}")
        self.stdout.write(f"{'mirror':<9} {shown(_mirror_text(row))}")


def _look_up(rotation: Rotation, who: str) -> Found | None:
    if who.isdigit():
        return rotation.twin(parse_id(who))
    return rotation.twin_by_account(parse_account(who))


def _twin_fields(found: Found) -> dict[str, Any]:
    twin = found.twin
    return {
        "id": twin.id,
        "account": ss58.encode(twin.account),
        "relays": " ".join(relays.split(twin.relay)) if twin.relay is not None else None,
        "pk": f"0x{twin.pk.hex()}" if twin.pk is not None else None,
        "block": found.height,
    }


def _mirror_text(row: Twin | None) -> str:
    if row is None:
        return "not in the database"
    if row.source != Twin.Source.CHAIN:
        return "in the database as a twin of the registry"
    stale = f", stale since block {row.stale_since}" if row.stale_since is not None else ""
    return f"as of block {row.height}{stale}: relays {row.relays or '-'}"


def _as_lines(state: ChainState, complaint: str, mirrored: int, now: float) -> list[str]:
    following, counts = state.following, state.following.counts
    tip = following.tip.height if following.tip else "-"
    lines = [
        f"nodes     {', '.join(settings.RMB.substrate.urls)}",
        f"follower  {complaint or f'at {following.url}, in process {following.by}'}",
        f"block     {tip}, {following.lag_blocks} behind the newest known"
        + (f" ({now - following.head_at:.0f} s ago)" if following.head_at else ""),
        f"changes   {counts['stored']} twins added, {counts['updated']} changed, all marked stale "
        f"{counts['flushes']} times",
        f"failures  {counts['node_errors']} errors of nodes, "
        f"{counts['store_errors']} changes that could not be stored",
        f"mirror    {mirrored} twins",
        f"import    {_import_text(state.imported)}",
    ]
    if settings.RMB.twins.source != "tfchain":
        used = "but a relay follows it" if following.leased else "the chain is not used"
        lines.insert(0, f"note      twins.source is registry here, {used}")
    return lines


def _import_text(imported: Import) -> str:
    if imported.running:
        at_it = "running" if imported.leased else "waiting to continue"
        because = f" ({imported.error})" if imported.error else ""
        return f"{at_it}, {imported.twins} twins read{because}"
    if imported.needed:
        return "needed, not started"
    if not imported.ended:
        return "never run"
    took = max(imported.ended - imported.began, 0.0)
    return f"done, {imported.twins} twins in {took:.1f} s, from block {imported.height}"


def _as_json(state: ChainState, complaint: str, mirrored: int, now: float) -> dict[str, Any]:
    following, imported = state
    return {
        "source": settings.RMB.twins.source,
        "nodes": list(settings.RMB.substrate.urls),
        "following": not complaint,
        "complaint": complaint,
        "url": following.url,
        "by": following.by,
        "height": following.tip.height if following.tip else None,
        "head_height": following.head_height,
        "lag_blocks": following.lag_blocks,
        "head_age_s": round(now - following.head_at, 1) if following.head_at else None,
        "counts": dict(following.counts),
        "mirrored": mirrored,
        "import": {
            "state": _import_text(imported),
            "needed": imported.needed,
            "twins": imported.twins,
            "newest_id": imported.newest_id,
        },
    }
