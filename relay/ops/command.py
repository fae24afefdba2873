"""What the commands of the relay (`rmb_*`) have in common."""

from __future__ import annotations

from django.core.management.base import BaseCommand


class RelayCommand(BaseCommand):
    """A command that checks what its operator can put right, and nothing else.

    Django's own checks look at the code. They import every page of the site for it, which takes
    longer than what most commands do; `manage.py check` runs them.
    """

    requires_system_checks = ("relay",)
