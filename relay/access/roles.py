"""Keeps the permissions of the groups of the roles equal to the matrix.

This runs after each `migrate`: the next start corrects a role that was changed by hand, and gives
permissions that are new in a release to the roles that should have them.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.db import transaction

from relay.access import matrix


def keep_true(using: str, verbosity: int = 0, **_: Any) -> None:
    """Set the permissions of each role's group to those of the matrix.

    Raises:
        LookupError: the matrix names a permission that no model declares.
    """
    # Django creates permissions app by app, and this app need not be the last.
    for config in apps.get_app_configs():
        create_permissions(config, verbosity=verbosity, interactive=False, using=using)
    with transaction.atomic(using=using):
        known = {
            f"{permission.content_type.app_label}.{permission.codename}": permission
            for permission in Permission.objects.using(using).select_related("content_type")
        }
        missing = matrix.all_permissions() - known.keys()
        if missing:
            raise LookupError(f"no model declares {', '.join(sorted(missing))}")
        for role in matrix.Role:
            group, _made = Group.objects.using(using).get_or_create(name=role.value)
            group.permissions.set(known[name] for name in matrix.permissions_of(role))
