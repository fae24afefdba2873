"""Django app of `relay.ops`."""

from __future__ import annotations

import importlib

from django.apps import AppConfig


class OpsAppConfig(AppConfig):
    name = "relay.ops"
    label = "relay_ops"
    verbose_name = "Operations"

    def ready(self) -> None:
        # Registers the system checks.
        importlib.import_module("relay.ops.checks")
