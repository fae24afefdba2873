"""`manage.py rmb_demo`: let the demo twins talk through the relay that runs here."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from relay.demo.__main__ import DemoError, find_relay, tell
from relay.ops.command import RelayCommand


class Command(RelayCommand):
    """Do the same as `make demo` in a checkout."""

    help = "Let demo twins exchange messages through the embedded relay of the data folder."

    def handle(self, *args: Any, **options: Any) -> None:
        folder = settings.RMB.data_dir
        try:
            asyncio.run(tell(folder, find_relay(folder)))
        except DemoError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted") from None
