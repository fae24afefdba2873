"""Accounts and groups in the admin: by the rules of `relay.access.accounts` and `groups`.

Forms check them, and hold the audit log from before they look to the end of their transaction, so
that what was checked is what is stored.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from relay.access import accounts, faces, groups
from relay.access.errors import Beyond, ServiceError
from relay.audit import services as audit

admin.site.unregister(User)
admin.site.unregister(Group)


class AccountForm(UserChangeForm):  # type: ignore[misc]
    """Django's, which also asks whether the actor may make such an account of it."""

    request: HttpRequest

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        if not self.errors:
            stored = User.objects.get(pk=self.instance.pk)
            wanted = User(
                **{name: found.get(name, getattr(stored, name)) for name in accounts.PLAIN}
            )
            after = accounts.standing_of(wanted, found["groups"], found["user_permissions"])
            who, before = faces.operator(self.request), accounts.standing(stored)
            try:
                accounts.check(before, after, pk=stored.pk, actor=who)
            except ServiceError as error:
                self.add_error(None, error.detail)
        return found


class GroupForm(ModelForm):  # type: ignore[type-arg]
    """A group that may not more than the actor."""

    request: HttpRequest

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        wanted = accounts.names(found.get("permissions", ()))
        try:
            groups.check(wanted, actor=faces.operator(self.request))
        except Beyond as error:
            self.add_error("permissions", error.detail)
        return found


class Audited(ModelAdmin):  # type: ignore[misc]
    """Writes what a form changed into the audit log, in the transaction of the form."""

    noun = ""
    page = ""

    def told(self, pk: Any) -> dict[str, Any] | None:
        """A row as the audit log has it."""
        raise NotImplementedError

    def response_post_save_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Back to the list of the console, which leads here."""
        return HttpResponseRedirect(reverse(self.page))

    def response_post_save_add(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return HttpResponseRedirect(reverse(self.page))

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # From before the form looks, and before it locks any row: see `audit`.
        with audit.exclusive() if request.method == "POST" else nullcontext():
            page: HttpResponse = super().changeform_view(request, *args, **kwargs)
        return page

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"request": request})

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        form.before = self.told(obj.pk) if change else None
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        action = f"{self.noun}.{'change' if change else 'add'}"
        obj = form.instance
        with audit.change(faces.operator(request), action, target=obj) as held:
            held.before, held.after = form.before, self.told(obj.pk)
            held.happened = held.before != held.after

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with transaction.atomic():
            for obj in queryset:
                self.delete_model(request, obj)


@admin.register(User)
class OperatorAdmin(UserAdmin, Audited):  # type: ignore[type-arg, misc]
    """Who may sign in. Only who has all rights may touch those who have them."""

    form = AccountForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    noun = "account"
    page = "console:access"
    actions = ("reset_second_factor",)

    @admin.action(description="Take the second factor away", permissions=["change"])
    def reset_second_factor(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """For those who lost theirs and their recovery codes."""
        with transaction.atomic():
            for user in queryset:
                accounts.reset_second_factor(user.pk, actor=faces.operator(request))
        messages.success(request, "Passwords are enough for these accounts now")

    def told(self, pk: Any) -> dict[str, Any] | None:
        user = User.objects.filter(pk=pk).first()
        return accounts.told(user) if user else None

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        *found, protected = super().get_deleted_objects(objs, request)
        owners = [user for user in objs if accounts.standing(user).owner]
        if owners and accounts.is_last_owner(*(user.pk for user in owners)):
            protected = [*protected, f"{owners[-1]} is the last owner"]
        return *found, protected

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        accounts.delete_account(obj.pk, actor=faces.operator(request))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _within(request, obj) and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _within(request, obj) and bool(super().has_delete_permission(request, obj))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = tuple(super().get_readonly_fields(request, obj))
        return fields if request.user.is_superuser else (*fields, "is_superuser")

    def user_change_password(
        self, request: HttpRequest, id: str, form_url: str = ""
    ) -> HttpResponse:
        with audit.exclusive():  # with `log_change` below
            page: HttpResponse = super().user_change_password(request, id, form_url)
        return page

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        shown = request.resolver_match.url_name if request.resolver_match else ""
        if shown == "auth_user_password_change":
            with audit.change(faces.operator(request), "account.change", target=obj) as held:
                held.after = {"password": "changed"}
        return super().log_change(request, obj, message)


@admin.register(Group)
class RoleAdmin(GroupAdmin, Audited):
    """What groups of operators may do. Those of the roles are what the matrix says."""

    form = GroupForm
    noun = "group"
    page = "console:access_groups"

    def told(self, pk: Any) -> dict[str, Any] | None:
        group = Group.objects.filter(pk=pk).first()
        return groups.told(group) if group else None

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        groups.delete_group(obj.pk, actor=faces.operator(request))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may_all(request, obj) and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may_all(request, obj) and bool(super().has_delete_permission(request, obj))


def _within(request: HttpRequest, obj: User | None) -> bool:
    return obj is None or accounts.within(accounts.standing(obj), actor=faces.operator(request))


def _may_all(request: HttpRequest, obj: Group | None) -> bool:
    if obj is None:
        return True
    if groups.is_role(obj):
        return False
    try:
        groups.check(groups.told(obj)["permissions"], actor=faces.operator(request))
    except Beyond:
        return False
    return True
