"""What the commands of the relay (`rmb_*`) have in common."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from redispipe.address import RedisAddress

PENDING: Final = 3
"""Exit code of a decision that is saved and not in force."""


class RelayCommand(BaseCommand):
    """A command that checks what its operator can put right, and nothing else.

    Django's own checks look at the code. They import every page of the site for it, which takes
    longer than what most commands do; `manage.py check` runs them.
    """

    requires_system_checks = ("relay",)

    def require_in_force(self) -> None:
        """End with exit code 3 where what was decided waits for Redis.

        Raises:
            CommandError: decisions are pending.
        """
        # Not at the top: models exist only once Django is set up, and few commands decide.
        from relay.ops import pending

        pending.settle()  # of an earlier outage, while no relay runs
        if pending.waiting():
            where = RedisAddress.parse(settings.RMB.redis.url).shown_url
            raise CommandError(f"{pending.TEXT} ({where})", returncode=PENDING)
