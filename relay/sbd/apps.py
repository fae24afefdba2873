"""Django app of `relay.sbd`."""

from __future__ import annotations

from django.apps import AppConfig


class SbdAppConfig(AppConfig):
    name = "relay.sbd"
    label = "relay_sbd"
    verbose_name = "SBD"
