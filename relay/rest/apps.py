"""The REST API as an app: its command. Nothing here or in its imports knows ninja."""

from __future__ import annotations

from django.apps import AppConfig


class RestConfig(AppConfig):
    name = "relay.rest"
    label = "relay_rest"
    verbose_name = "REST API"
