"""`manage.py rmb_resourcedoc`: the reference of all declared resources, as Markdown."""

from __future__ import annotations

from typing import Any

from relay.ops.command import RelayCommand
from relay.resources import registry
from relay.resources.reference import markdown


class Command(RelayCommand):
    """Generate the documentation from the declarations, so that it is never out of date."""

    help = "Print the reference of lists that are declared once for all interfaces."

    def handle(self, *args: Any, **options: Any) -> None:
        for line in markdown(registry.resources()):
            self.stdout.write(line)
