"""Set Django up in a process of the relay."""

from __future__ import annotations

import django
from django.apps import apps


def set_up_django() -> None:
    """Set Django up, unless the warm parent did so before it forked this process."""
    if not apps.ready:
        django.setup()
