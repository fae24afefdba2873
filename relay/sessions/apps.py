"""Django app of `relay.sessions`."""

from __future__ import annotations

from django.apps import AppConfig


class SessionsAppConfig(AppConfig):
    name = "relay.sessions"
    label = "relay_sessions"
    verbose_name = "Sessions"
