"""Django app of `relay.trace`."""

from __future__ import annotations

from django.apps import AppConfig


class TraceAppConfig(AppConfig):
    name = "relay.trace"
    label = "relay_trace"
    verbose_name = "Traces"
