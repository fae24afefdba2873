"""The groups of the roles, made to have what the matrix says.

Runs after each `migrate`: a role that somebody changed by hand is right again after the next
start, and a permission a new release brings is given to those who should have it.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.db import transaction

from relay.access import matrix


def keep_true(using: str, verbosity: int = 0, **_: Any) -> None:
    """Give each role's group the permissions of the matrix, no more and no less.

    Raises:
        LookupError: the matrix names a permission that no model declares.
    """
    # Django makes permissions application by application, and this one need not be the last.
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
