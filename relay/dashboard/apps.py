"""Django app of the console."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """The console's pages; the data they show and change belongs to the other applications."""

    name = "relay.dashboard"
    label = "relay_dashboard"
    verbose_name = "console"
