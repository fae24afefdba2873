"""`manage.py rmb_devchain`: a test node of TFChain, for work without a network."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chain.devchain import cli
from chain.devchain.errors import DevchainError


class Command(BaseCommand):
    """Command that runs a development node, without access to the data of the site."""

    help = "Run a test node that behaves like TFChain, for work without a network."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own declaration

    def add_arguments(self, parser: ArgumentParser) -> None:
        cli.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            cli.run(Namespace(**options))
        except DevchainError as error:
            raise CommandError(str(error), returncode=2) from None
