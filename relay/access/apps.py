"""Django app of `relay.access`."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class AccessAppConfig(AppConfig):
    name = "relay.access"
    label = "relay_access"
    verbose_name = "Access"

    def ready(self) -> None:
        if apps.is_installed("django.contrib.admin"):  # not in relay workers, which have no sign-in
            from relay.access.sign_in import events

            events.connect()
        post_migrate.connect(_keep_roles_true, sender=self, dispatch_uid="relay.access.roles")


def _keep_roles_true(using: str, verbosity: int, plan: Any = (), **_: Any) -> None:
    # Imported here because relay workers set up Django too, and do not need it.
    from relay.access import roles

    roles.keep_true(using, verbosity)
