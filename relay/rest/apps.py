"""Django app of `relay.rest`, for its command. Neither this module nor its imports need ninja."""

from __future__ import annotations

from django.apps import AppConfig


class RestConfig(AppConfig):
    name = "relay.rest"
    label = "relay_rest"
    verbose_name = "REST API"
