"""Django app of `relay.analytics`."""

from __future__ import annotations

from django.apps import AppConfig


class AnalyticsAppConfig(AppConfig):
    name = "relay.analytics"
    label = "relay_analytics"
    verbose_name = "Analytics"
