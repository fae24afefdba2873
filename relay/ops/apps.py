"""Django app of `relay.ops`."""

from __future__ import annotations

from django.apps import AppConfig


class OpsAppConfig(AppConfig):
    name = "relay.ops"
    label = "relay_ops"
    verbose_name = "Ops"
