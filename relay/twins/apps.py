"""Django app of `relay.twins`."""

from __future__ import annotations

from django.apps import AppConfig


class TwinsAppConfig(AppConfig):
    name = "relay.twins"
    label = "relay_twins"
    verbose_name = "Twins"
