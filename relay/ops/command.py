"""Base class of the relay's commands (`rmb_*`)."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from redispipe.address import RedisAddress

PENDING: Final = 3
"""Exit code of a decision that is saved but not in force yet."""


class RelayCommand(BaseCommand):
    """A command that runs only the checks of settings that its operator can correct.

    Django's own checks examine the code. For that they import every page of the site, which takes
    longer than most commands; `manage.py check` runs them.
    """

    requires_system_checks = ("relay",)

    def require_in_force(self) -> None:
        """End with exit code 3 if a decision waits for Redis.

        Raises:
            CommandError: Decisions are pending.
        """
        # Imported here: models exist only once Django is set up, and few commands make decisions.
        from relay.ops import pending

        pending.settle()  # left by an earlier outage, if no relay runs
        if pending.waiting():
            where = RedisAddress.parse(settings.RMB.redis.url).shown_url
            raise CommandError(f"{pending.TEXT} ({where})", returncode=PENDING)
