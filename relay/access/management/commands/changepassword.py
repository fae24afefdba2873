"""`manage.py changepassword`: Django's, in the audit log."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.management.commands import changepassword

from relay.access.command_saves import audited


class Command(changepassword.Command):
    """Django's command, audited: its user may do everything, but every change is recorded."""

    def handle(self, *args: Any, **options: Any) -> str | None:
        with audited("account.change", lambda user: {"password": "changed"}):
            return super().handle(*args, **options)
