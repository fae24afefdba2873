"""`manage.py createsuperuser`: Django's, in the audit log."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.management.commands import createsuperuser

from relay.access import accounts
from relay.access.command_saves import audited


class Command(createsuperuser.Command):
    """Django's command, audited: its user may do everything, but every change is recorded."""

    def handle(self, *args: Any, **options: Any) -> None:
        with audited("account.add", accounts.told):
            super().handle(*args, **options)
