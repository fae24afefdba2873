"""`manage.py changepassword`: Django's, in the audit log."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.management.commands import changepassword

from relay.access.command_saves import audited


class Command(changepassword.Command):
    """Who may run it may do everything, but not unseen."""

    def handle(self, *args: Any, **options: Any) -> str | None:
        with audited("account.change", lambda user: {"password": "changed"}):
            return super().handle(*args, **options)
