"""Django app of `relay.history`."""

from __future__ import annotations

from django.apps import AppConfig


class HistoryAppConfig(AppConfig):
    name = "relay.history"
    label = "relay_history"
    verbose_name = "History"
