"""Accounts and groups over REST. Passwords are accepted and never returned."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from django.contrib.auth.models import Group, User
from ninja import Field, Query, Router, Schema

from relay.access import accounts, groups
from relay.access.api import MAX_PERMISSIONS, Permission
from relay.audit import services as audit
from relay.rest import etag
from relay.rest.caller import Request
from relay.rest.operation import delete, get, patch, post
from relay.rest.paging import page
from relay.rest.schema import Body, Flag, Live, Page, PageQuery, RowId

router = Router(tags=["accounts"])

MAX_NAME_CHARS: Final = 150
"""Maximum length of the name of an account or a group, and of a person's names, as in Django."""
MAX_EMAIL_CHARS: Final = 254
MAX_GROUPS: Final = 100

AccountName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_NAME_CHARS,
        pattern=r"^[A-Za-z0-9_@.+-]+$",
        description="Name for signing in.",
    ),
]
GroupName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
PersonName = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
Email = Annotated[str, Field(max_length=MAX_EMAIL_CHARS)]
Password = Annotated[
    str,
    Field(
        min_length=1,
        max_length=accounts.MAX_PASSWORD_CHARS,
        description="Answers never contain it.",
    ),
]
Groups = Annotated[list[GroupName], Field(max_length=MAX_GROUPS, description="Names of groups.")]
Permissions = Annotated[list[Permission], Field(max_length=MAX_PERMISSIONS)]


class AccountOut(Schema):
    """An account that people sign in with, or that programs act for."""

    id: int
    username: str
    email: str
    first_name: str
    last_name: str
    is_active: bool
    is_staff: bool = Field(description="Whether the account may use the operator site.")
    is_superuser: bool = Field(description="Whether the account has all permissions.")
    groups: list[str]
    permissions: list[str] = Field(description="Permissions in addition to those of the groups.")
    second_factor: Live[bool] = Field(description="Whether the account has a second factor.")
    date_joined: datetime
    last_login: Live[datetime | None]


class AccountIn(Body):
    """A new account."""

    username: AccountName
    password: Password | None = Field(
        None, description="null: no password; the account can only sign in with OpenID Connect."
    )
    email: Email = ""
    first_name: PersonName = ""
    last_name: PersonName = ""
    is_active: Flag = True
    is_staff: Flag = True
    is_superuser: Flag = False
    groups: Groups = Field(default_factory=list)
    permissions: Permissions = Field(default_factory=list)


class AccountChange(Body):
    """Fields to change; missing fields keep their values."""

    username: AccountName | None = None
    email: Email | None = None
    first_name: PersonName | None = None
    last_name: PersonName | None = None
    is_active: Flag | None = None
    is_staff: Flag | None = None
    is_superuser: Flag | None = None
    groups: Groups | None = None
    permissions: Permissions | None = None


class PasswordIn(Body):
    """Another password."""

    password: Password | None = Field(description="null: remove the password.")


class AccountQuery(PageQuery):
    """Filters of the list."""

    active: Literal["true", "false"] | None = None
    group: str | None = Field(None, max_length=MAX_NAME_CHARS)
    order: Literal["id", "-id", "username", "-username"] = "id"


class GroupOut(Schema):
    """A group of accounts."""

    id: int
    name: str
    role: bool = Field(description="One of viewer, operator and owner, which cannot be changed.")
    permissions: list[str]


class GroupIn(Body):
    """A new group."""

    name: GroupName
    permissions: Permissions = Field(default_factory=list)


class GroupChange(Body):
    """Fields to change; missing fields keep their values."""

    name: GroupName | None = None
    permissions: Permissions | None = None


class GroupQuery(PageQuery):
    """Order of the list."""

    order: Literal["id", "-id", "name", "-name"] = "id"


@get(router, "/accounts", action="account.view", answer=Page[AccountOut])
def list_accounts(request: Request, query: Query[AccountQuery]) -> Any:
    """List accounts that can sign in."""
    rows = User.objects.prefetch_related("groups", "user_permissions__content_type")
    if query.active is not None:
        rows = rows.filter(is_active=query.active == "true")
    if query.group is not None:
        rows = rows.filter(groups__name=query.group)
    return page(query, rows, {"id": "pk", "username": "username"}, show=_accounts)


@get(router, "/accounts/{account}", action="account.view", answer=AccountOut, tagged=True)
def get_account(request: Request, account: RowId) -> Any:
    """Get an account."""
    return _account(accounts.get_account(account))


@post(router, "/accounts", action="account.add", answer=AccountOut, status=201)
def create_account(request: Request, body: AccountIn) -> Any:
    """Add an account.

    It cannot get permissions that the caller does not have. Superusers are added with the console
    or a command.
    """
    return _account(accounts.create_account(**body.model_dump(), actor=request.actor))


@patch(
    router,
    "/accounts/{account}",
    action="account.change",
    answer=AccountOut,
    tagged=True,
    conflicts=True,
)
def change_account(request: Request, account: RowId, body: AccountChange) -> Any:
    """Change an account.

    The change applies to the next request of the account and of its tokens. The last owner cannot
    lose the role, and an owner cannot remove it from their own account.
    """
    values = {name: value for name, value in body.model_dump().items() if value is not None}
    with audit.exclusive():
        etag.check_match(request, _account(accounts.get_account(account)))
        return _account(accounts.change_account(account, **values, actor=request.actor))


@post(
    router,
    "/accounts/{account}/password",
    action="account.change",
    answer=AccountOut,
)
def set_account_password(request: Request, account: RowId, body: PasswordIn) -> Any:
    """Give an account another password.

    Its browser sessions end and have to sign in again; its tokens stay valid.
    """
    return _account(accounts.set_password(account, body.password, actor=request.actor))


@post(
    router,
    "/accounts/{account}/reset-second-factor",
    action="account.reset_second_factor",
    answer=AccountOut,
)
def reset_second_factor(request: Request, account: RowId) -> Any:
    """Remove the second factor of an account, such as after its loss."""
    accounts.reset_second_factor(account, actor=request.actor)
    return _account(accounts.get_account(account))


@post(
    router,
    "/accounts/{account}/end-sessions",
    action="account.end_sessions",
    answer=AccountOut,
)
def end_account_sessions(request: Request, account: RowId) -> Any:
    """End all browser sessions of an account; its API tokens stay valid."""
    accounts.end_sessions(account, actor=request.actor)
    return _account(accounts.get_account(account))


@delete(
    router,
    "/accounts/{account}",
    action="account.delete",
    answer=None,
    status=204,
    tagged=True,
    conflicts=True,
)
def delete_account(request: Request, account: RowId) -> Any:
    """Delete an account, with its tokens.

    To refuse sign-ins for a while, set `is_active` to false instead. The last owner cannot be
    deleted.
    """
    with audit.exclusive():
        etag.check_match(request, _account(accounts.get_account(account)))
        accounts.delete_account(account, actor=request.actor)


@get(router, "/groups", action="group.view", answer=Page[GroupOut])
def list_groups(request: Request, query: Query[GroupQuery]) -> Any:
    """List groups of accounts with their permissions."""
    rows = Group.objects.prefetch_related("permissions__content_type")
    orders = {"id": "pk", "name": "name"}
    return page(query, rows, orders, show=lambda found: map(_group, found))


@get(router, "/groups/{group}", action="group.view", answer=GroupOut, tagged=True)
def get_group(request: Request, group: RowId) -> Any:
    """Get a group."""
    return _group(groups.get_group(group))


@post(router, "/groups", action="group.add", answer=GroupOut, status=201)
def create_group(request: Request, body: GroupIn) -> Any:
    """Add a group. It cannot get permissions that the caller does not have."""
    made = groups.create_group(body.name, body.permissions, actor=request.actor)
    return _group(made)


@patch(
    router,
    "/groups/{group}",
    action="group.change",
    answer=GroupOut,
    tagged=True,
    conflicts=True,
)
def change_group(request: Request, group: RowId, body: GroupChange) -> Any:
    """Change a group. The groups of the three roles cannot be changed."""
    with audit.exclusive():
        etag.check_match(request, _group(groups.get_group(group)))
        return _group(groups.change_group(group, **body.model_dump(), actor=request.actor))


@delete(
    router,
    "/groups/{group}",
    action="group.delete",
    answer=None,
    status=204,
    tagged=True,
    conflicts=True,
)
def delete_group(request: Request, group: RowId) -> Any:
    """Delete a group; its members lose its permissions."""
    with audit.exclusive():
        etag.check_match(request, _group(groups.get_group(group)))
        groups.delete_group(group, actor=request.actor)


def _account(user: User) -> AccountOut:
    return _accounts([user])[0]


def _accounts(found: list[User]) -> list[AccountOut]:
    guarded = accounts.with_second_factor([user.pk for user in found])
    return [
        AccountOut(
            **{name: getattr(user, name) for name in accounts.PLAIN},
            id=user.pk,
            groups=sorted(group.name for group in user.groups.all()),
            permissions=accounts.names(user.user_permissions.all()),
            second_factor=user.pk in guarded,
            date_joined=user.date_joined,
            last_login=user.last_login,
        )
        for user in found
    ]


def _group(found: Group) -> GroupOut:
    return GroupOut(
        id=found.pk,
        name=found.name,
        role=groups.is_role(found),
        permissions=accounts.names(found.permissions.all()),
    )
