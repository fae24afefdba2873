"""Django app of `relay.limits`."""

from __future__ import annotations

from django.apps import AppConfig


class LimitsAppConfig(AppConfig):
    name = "relay.limits"
    label = "relay_limits"
    verbose_name = "Limits"
