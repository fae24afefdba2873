"""Operations on accounts: create, change and delete. The console, REST and commands use them.

Three rules apply to every actor, in addition to the permissions of the matrix:

- an actor can neither change nor create an account that has permissions the actor lacks: to set a
  password or remove a second factor is to become that account. So only signed-in superusers and
  commands can change superusers: a token never has all permissions;
- the last owner cannot stop being one: an owner is an account that is active, may use the site and
  is a superuser or in the group `owner`. Owners cannot do this to their own account either;
- a password is checked and stored as a hash, and appears in no answer and not in the audit log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, Permission, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet, prefetch_related_objects

from relay.access import matrix
from relay.access.actor import Actor
from relay.access.errors import Beyond, Conflict, Invalid, NotFound
from relay.access.sign_in import open_sessions, use
from relay.audit import services as audit

MAX_PASSWORD_CHARS: Final = 1024
"""Maximum length of a password; longer ones would only make hashing slow."""

STANDING: Final = ("groups__permissions__content_type", "user_permissions__content_type")
"""Relations that `standing` reads of an account."""
PLAIN: Final = (
    "username", "email", "first_name", "last_name", "is_active", "is_staff", "is_superuser",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing:
    """Status, groups and permissions of an account, now or after a change.

    Attributes:
        enters: whether it is active and may use the site.
        groups: names of its groups.
        permissions: its own permissions and those of its groups; a superuser has all others too.
    """

    enters: bool
    superuser: bool
    groups: frozenset[str]
    permissions: frozenset[str]

    @property
    def owner(self) -> bool:
        """Whether it is an owner, who manages accounts."""
        return self.enters and (self.superuser or matrix.Role.OWNER in self.groups)


def get_account(pk: int) -> User:
    """Return an account.

    Raises:
        NotFound: it does not exist.
    """
    user = User.objects.filter(pk=pk).first()
    if user is None:
        raise NotFound(f"there is no account {pk}")
    return user


def create_account(
    username: str,
    *,
    password: str | None = None,
    one_time: bool = False,
    groups: Sequence[str] = (),
    permissions: Sequence[str] = (),
    actor: Actor,
    **fields: Any,
) -> User:
    """Create an account.

    Args:
        username: user name, as Django allows it.
        password: password; None for an account that signs in by OpenID Connect, or acts by tokens
            only.
        one_time: whether it must replace the password at its first sign-in.
        groups: names of its groups.
        permissions: permissions in addition to those of its groups.
        actor: actor that creates it.
        fields: other fields of `PLAIN`; by default it is active and may use the site.

    Raises:
        Denied, Away
        Beyond: it would have permissions that the actor lacks.
        Invalid: a value is out of bounds.
    """
    with audit.change(actor, "account.add", target=username) as change:
        user = User(**{"is_staff": True, **fields}, username=username)
        its_groups, its_permissions = _groups(groups), named(permissions)
        check(None, standing_of(user, its_groups, its_permissions), actor=actor)
        _set_password(user, password)
        user.full_clean()
        user.save()
        user.groups.set(its_groups)
        user.user_permissions.set(its_permissions)
        if one_time:
            use.demand_change(user)
        change.after = told(user)
    return user


def change_account(
    pk: int,
    *,
    groups: Sequence[str] | None = None,
    permissions: Sequence[str] | None = None,
    actor: Actor,
    **fields: Any,
) -> User:
    """Change an account; values that are not given stay.

    Args:
        pk: id of the account.
        groups, permissions: as in `create_account`.
        actor: actor that changes it.
        fields: fields of `PLAIN`.

    Raises:
        Denied, NotFound, Away
        Beyond: it has, or would have, permissions that the actor lacks.
        Invalid: a value is out of bounds.
        Conflict: it would stop being an owner, and is the last one or the actor's own account.
    """
    with audit.change(actor, "account.change") as change:
        user = get_account(pk)
        change.target = user.username
        change.before, before = told(user), standing(user)
        for name, value in fields.items():
            setattr(user, name, value)
        its_groups = list(user.groups.all()) if groups is None else _groups(groups)
        own = user.user_permissions.all()
        its_permissions = list(_with_apps(own)) if permissions is None else named(permissions)
        after, own_account = standing_of(user, its_groups, its_permissions), _is_own(user, actor)
        check(before, after, pk=pk, own=own_account, actor=actor)
        user.full_clean()
        user.save(update_fields=[*fields])
        user.groups.set(its_groups)
        user.user_permissions.set(its_permissions)
        change.after = told(user)
        change.happened = change.before != change.after
    return user


def set_password(pk: int, password: str | None, *, one_time: bool = False, actor: Actor) -> User:
    """Replace or remove the password of an account; this ends its sessions, but not its tokens.

    Args:
        one_time: whether the account must replace it at its next sign-in.

    Raises:
        Denied, NotFound, Away
        Beyond: the account has permissions that the actor lacks.
        Invalid: the password is too short or too common.
    """
    with audit.change(actor, "account.change") as change:
        user = get_account(pk)
        change.target = user.username
        check(standing(user), standing(user), pk=pk, actor=actor)
        _set_password(user, password)
        user.save(update_fields=["password"])
        if one_time:
            use.demand_change(user)
        change.after = {"password": "removed" if password is None else "changed"}
    return user


def end_sessions(pk: int, *, actor: Actor) -> int:
    """End all browser sessions of an account; its tokens stay valid.

    Returns:
        Number of sessions ended.

    Raises:
        Denied, NotFound, Away
        Beyond: the account has permissions that the actor lacks.
    """
    with audit.change(actor, "account.end_sessions") as change:
        user = get_account(pk)
        change.target = user.username
        check(standing(user), standing(user), pk=pk, actor=actor)
        ended = open_sessions.end(user)
        change.after, change.happened = {"ended": ended}, bool(ended)
    return ended


def delete_account(pk: int, *, actor: Actor) -> None:
    """Delete an account with its tokens and factors.

    Raises:
        Denied, NotFound, Away
        Beyond: the account has permissions that the actor lacks.
        Conflict: it is the last owner, or the actor's own account and an owner.
    """
    with audit.change(actor, "account.delete") as change:
        user = get_account(pk)
        change.target, change.before = user.username, told(user)
        check(standing(user), None, pk=pk, own=_is_own(user, actor), actor=actor)
        user.delete()


def reset_second_factor(pk: int, *, actor: Actor) -> bool:
    """Remove the second factor of an account, for users who lost it and their recovery codes.

    Returns:
        Whether there was one.

    Raises:
        Denied, NotFound, Away
        Beyond: the account has permissions that the actor lacks.
    """
    with audit.change(actor, "account.reset_second_factor") as change:
        user = get_account(pk)
        change.target = user.username
        check(standing(user), standing(user), pk=pk, actor=actor)
        change.happened = bool(Authenticator.objects.filter(user=user).delete()[0])
    return change.happened


def with_second_factor(accounts: Iterable[int]) -> frozenset[int]:
    """Return those of these accounts that have a second factor."""
    found = Authenticator.objects.filter(user__in=list(accounts))
    return frozenset(found.values_list("user", flat=True))


def check(
    before: Standing | None,
    after: Standing | None,
    *,
    pk: int | None = None,
    own: bool = False,
    actor: Actor,
) -> None:
    """Check whether an account may be changed like this. The caller excludes concurrent changes.

    Args:
        before: its standing now; None if it is created.
        after: its standing after the change; None if it is deleted.
        pk: id of the account, if it exists.
        own: whether it is the actor's own account.
        actor: actor that changes it.

    Raises:
        Beyond: it has, or would have, permissions that the actor lacks.
        Conflict: it would stop being an owner, and is the last one or the actor's own account.
    """
    for each in filter(None, (before, after)):
        if not within(each, actor=actor):
            raise Beyond("your account must have all permissions of the account")
    if before and before.owner and not (after and after.owner):
        if is_last_owner(pk):
            raise Conflict("this is the last owner; make another account an owner first")
        if own:
            raise Conflict("this is your own account; ask another owner to do this")


def within(found: Standing, *, actor: Actor) -> bool:
    """Check whether the actor has all permissions that the account has."""
    if actor.permissions is None:
        return True
    return not found.superuser and found.permissions <= actor.permissions


def is_last_owner(*accounts: int | None) -> bool:
    """Check whether there is no owner other than these accounts."""
    owners = Q(is_superuser=True) | Q(groups__name=matrix.Role.OWNER.value)
    others = User.objects.filter(owners, is_active=True, is_staff=True)
    return not others.exclude(pk__in=[each for each in accounts if each is not None]).exists()


def standing(user: User) -> Standing:
    """Return the stored standing of an account. Needs no query if `STANDING` is prefetched."""
    prefetch_related_objects([user], *STANDING)
    its_groups = list(user.groups.all())
    of_groups = [each for group in its_groups for each in group.permissions.all()]
    return _standing(user, its_groups, [*user.user_permissions.all(), *of_groups])


def standing_of(
    user: User, groups: Collection[Group], permissions: Collection[Permission]
) -> Standing:
    """Return the standing of an account with these groups and permissions of its own."""
    of_groups = _with_apps(Permission.objects.filter(group__in=groups))
    return _standing(user, groups, [*permissions, *of_groups])


def told(user: User) -> dict[str, Any]:
    """Return an account for the audit log."""
    return {
        **{name: getattr(user, name) for name in PLAIN},
        "groups": sorted(user.groups.values_list("name", flat=True)),
        "permissions": names(_with_apps(user.user_permissions.all())),
    }


def names(permissions: Iterable[Permission]) -> list[str]:
    """Return the names of permissions, as the matrix spells them."""
    return sorted(f"{each.content_type.app_label}.{each.codename}" for each in permissions)


def named(wanted: Sequence[str]) -> list[Permission]:
    """Return the permissions with these names.

    Raises:
        Invalid: a name is not in the matrix.
    """
    unknown = set(wanted) - matrix.all_permissions()
    if unknown:
        raise Invalid(fields={"permissions": f"unknown: {', '.join(sorted(unknown))}"[:300]})
    codes = {name.partition(".")[2] for name in wanted}
    found = _with_apps(Permission.objects.filter(codename__in=codes))
    return [each for each in found if f"{each.content_type.app_label}.{each.codename}" in wanted]


def _standing(
    user: User, groups: Collection[Group], permissions: Collection[Permission]
) -> Standing:
    return Standing(
        enters=user.is_active and user.is_staff,
        superuser=user.is_superuser,
        groups=frozenset(group.name for group in groups),
        permissions=frozenset(names(permissions)),
    )


def _is_own(user: User, actor: Actor) -> bool:
    return user.username == actor.account


def _groups(wanted: Sequence[str]) -> list[Group]:
    found = list(Group.objects.filter(name__in=wanted))
    unknown = set(wanted) - {group.name for group in found}
    if unknown:
        raise Invalid(fields={"groups": f"there is no {', '.join(sorted(unknown))}"[:300]})
    return found


def _set_password(user: User, password: str | None) -> None:
    if password is None:
        user.set_unusable_password()
        return
    try:
        if len(password) > MAX_PASSWORD_CHARS:
            raise ValidationError(f"must be at most {MAX_PASSWORD_CHARS} characters")
        validate_password(password, user)
    except ValidationError as error:
        raise Invalid(fields={"password": " ".join(error.messages)}) from None
    user.set_password(password)


def _with_apps(permissions: QuerySet[Permission]) -> QuerySet[Permission]:
    return permissions.select_related("content_type")
