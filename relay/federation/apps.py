"""Django app of `relay.federation`."""

from __future__ import annotations

from django.apps import AppConfig


class FederationAppConfig(AppConfig):
    name = "relay.federation"
    label = "relay_federation"
    verbose_name = "Federation"
