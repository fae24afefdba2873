"""Django app of `relay.alarms`."""

from __future__ import annotations

from django.apps import AppConfig


class AlarmsAppConfig(AppConfig):
    name = "relay.alarms"
    label = "relay_alarms"
    verbose_name = "Alarms"
