"""`manage.py rmb_token create|list|revoke`: API tokens on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandError
from django.db import Error as DatabaseError

from relay.access import faces, matrix, services
from relay.access.actor import of_command
from relay.access.models import ApiToken
from relay.ops.command import RelayCommand
from relay.ops.printable import shown

DESCRIPTION = """\
Tokens for programs that use the REST API. A token acts for an account and never has more
permissions than the account. The command shows a token only once.

  rmb_token create --account olga --label grafana --role viewer --days 365
  rmb_token create --account olga --label kicker --permission relay_sessions.kick_session
  rmb_token list
  rmb_token revoke rmb_0123456789abcdef

`create` writes the token, and nothing else, to standard output:

  rmb_token create … > token && curl -H "Authorization: Bearer $(cat token)" …/api/v1/sessions
"""


class Command(RelayCommand):
    """Command with one method for each sub-command."""

    help = "API tokens: create, list, revoke."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="create a token and show it once")
        create.add_argument("--account", required=True, help="account the token acts for")
        create.add_argument("--label", required=True, help="purpose of the token")
        create.add_argument(
            "--role", default="", choices=[*map(str, matrix.Role)], help="role of the token"
        )
        create.add_argument(
            "--permission", action="append", default=[], metavar="NAME",
            help="single permission, such as relay_sessions.kick_session; repeatable",
        )  # fmt: skip
        create.add_argument(
            "--days",
            type=int,
            default=services.DEFAULT_DAYS,
            help="days until it expires (default 90)",
        )
        create.add_argument("--json", action="store_true", help="one JSON object with the token")
        lister = verbs.add_parser("list", help="list tokens with their last use and expiry")
        lister.add_argument("--all", action="store_true", help="revoked and expired ones as well")
        lister.add_argument("--json", action="store_true", help="one JSON array")
        revoke = verbs.add_parser("revoke", help="revoke a token")
        revoke.add_argument("id", help="such as rmb_0123456789abcdef")
        revoke.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        actions = {"create": self._create, "list": self._list, "revoke": self._revoke}
        with faces.in_command():
            try:
                actions[verb](options)
            except DatabaseError as error:
                raise CommandError(f"database: {error}") from None

    def _create(self, options: dict[str, Any]) -> None:
        made = services.create_token(
            options["account"],
            options["label"],
            role=options["role"],
            permissions=options["permission"],
            days=options["days"],
            actor=of_command(),
        )
        if options["json"]:
            self.stdout.write(json.dumps({**services.shown(made.token), "token": made.text}))
            return
        self.stderr.write(f"{made.token} until {made.token.expires:%Y-%m-%d}; shown this once:")
        self.stdout.write(made.text)

    def _list(self, options: dict[str, Any]) -> None:
        found = ApiToken.objects.all() if options["all"] else services.live_tokens()
        rows = [services.shown(token) for token in found.select_related("account")]
        if options["json"]:
            self.stdout.write(json.dumps(rows, indent=2))
            return
        for row in rows:
            may = row["role"] or ", ".join(row["permissions"])
            used = f"used {row['last_used'][:16]}" if row["last_used"] else "never used"
            self.stdout.write(
                f"{row['id']}  {row['state']:<7}  until {row['expires'][:10]}  {used}  "
                f"{shown(row['account'])}  {shown(row['label'])}  {may}"
            )

    def _revoke(self, options: dict[str, Any]) -> None:
        token = services.revoke_token(options["id"], actor=of_command())
        told = json.dumps(services.shown(token)) if options["json"] else f"{token} revoked"
        self.stdout.write(told)
