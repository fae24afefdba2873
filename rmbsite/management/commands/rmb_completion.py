"""`manage.py rmb_completion`: completion of the commands for a shell."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter, _SubParsersAction
from typing import Any

import shtab
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

from relay.server import cli

DESCRIPTION = """\
Print a script that lets a shell complete commands, their verbs and options:

  bash   rmb-manage rmb_completion bash > ~/.local/share/bash-completion/completions/rmb-manage
  zsh    rmb-manage rmb_completion zsh > ~/.zfunc/_rmb-manage     (a folder of $fpath)
  fish   rmb-manage rmb_completion fish > ~/.config/fish/completions/rmb-manage.fish
  tcsh   rmb-manage rmb_completion tcsh > ~/.rmb-manage.tcsh      (and source it)

The script lists the commands of this release: run it again after an upgrade.
"""

PROGRAM = "rmb-manage"
OTHERS = ("check", "createsuperuser", "changepassword", "migrate", "showmigrations", "runrelay")
"""Further commands that are useful to an operator."""


class Command(BaseCommand):
    """The command, which combines the parsers of all commands into one."""

    help = "Print a completion script for a shell."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="name of the shell")

    def handle(self, *args: Any, shell: str, **options: Any) -> None:
        self.stdout.write(shtab.complete(everything(), shell))


def everything() -> ArgumentParser:
    """Return a parser whose sub-commands are the commands of the site."""
    parser = ArgumentParser(prog=PROGRAM)
    commands: _SubParsersAction[Any] = parser.add_subparsers()
    found = get_commands()
    for name in sorted(found):
        if not name.startswith("rmb_") and name not in OTHERS:
            continue
        command = load_command_class(str(found[name]), name)
        # The parser of `runrelay` is not Django's: its options are settings, read before Django
        # loads.
        own = cli.build_parser(name) if name == "runrelay" else command.create_parser(PROGRAM, name)
        entry = commands.add_parser(name, help=command.help, parents=[own], add_help=False)
        entry.description = command.help
    return parser
