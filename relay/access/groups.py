"""Operations on groups of accounts, except the three roles, whose permissions the matrix fixes.

An actor can neither give a group permissions that the actor lacks, nor change a group that has
such permissions, because its members get them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from django.contrib.auth.models import Group

from relay.access import matrix
from relay.access.accounts import named, names
from relay.access.actor import Actor
from relay.access.errors import Beyond, Conflict, NotFound
from relay.audit import services as audit

ROLES: Final = frozenset(role.value for role in matrix.Role)


def get_group(pk: int) -> Group:
    """Return a group.

    Raises:
        NotFound: it does not exist.
    """
    group = Group.objects.filter(pk=pk).first()
    if group is None:
        raise NotFound(f"there is no group {pk}")
    return group


def create_group(name: str, permissions: Sequence[str] = (), *, actor: Actor) -> Group:
    """Create a group.

    Args:
        name: unique name.
        permissions: permissions of the matrix.
        actor: actor that creates it, and must have all of them.

    Raises:
        Denied, Away
        Beyond: the group would have permissions that the actor lacks.
        Invalid: a value is out of bounds.
    """
    with audit.change(actor, "group.add", target=name) as change:
        wanted = named(permissions)
        check(names(wanted), actor=actor)
        group = Group(name=name)
        group.full_clean()
        group.save()
        group.permissions.set(wanted)
        change.after = told(group)
    return group


def change_group(
    pk: int,
    *,
    name: str | None = None,
    permissions: Sequence[str] | None = None,
    actor: Actor,
) -> Group:
    """Change a group; values that are not given stay.

    Raises:
        Denied, NotFound, Away
        Beyond: the group has, or would have, permissions that the actor lacks.
        Invalid: a value is out of bounds.
        Conflict: it is a role.
    """
    with audit.change(actor, "group.change") as change:
        group = _changeable(pk, change, actor)
        if name is not None:
            group.name = name
            group.full_clean()
            group.save()
        if permissions is not None:
            wanted = named(permissions)
            check(names(wanted), actor=actor)
            group.permissions.set(wanted)
        change.after = told(group)
        change.happened = change.before != change.after
    return group


def delete_group(pk: int, *, actor: Actor) -> None:
    """Delete a group; its members lose its permissions.

    Raises:
        Denied, NotFound, Away
        Beyond: the group has permissions that the actor lacks.
        Conflict: it is a role.
    """
    with audit.change(actor, "group.delete") as change:
        _changeable(pk, change, actor).delete()


def check(permissions: Collection[str], *, actor: Actor) -> None:
    """Check whether the actor has all these permissions.

    Raises:
        Beyond: the actor lacks some.
    """
    if actor.permissions is not None and not set(permissions) <= actor.permissions:
        raise Beyond("your account must have all permissions of the group")


def is_role(group: Group) -> bool:
    """Check whether a group is one of the three roles, which are restored after each `migrate`."""
    return group.name in ROLES


def told(group: Group) -> dict[str, Any]:
    """Return a group for the audit log."""
    permissions = group.permissions.select_related("content_type")
    return {"name": group.name, "permissions": names(permissions)}


def _changeable(pk: int, change: audit.Change, actor: Actor) -> Group:
    group = get_group(pk)
    change.target, change.before = group.name, told(group)
    if is_role(group):
        raise Conflict(f"{group.name} is a role; its permissions are fixed")
    check(change.before["permissions"], actor=actor)
    return group
