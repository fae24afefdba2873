"""Accounts and groups in the admin, in the theme of the site, and every change in the audit log."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from relay.access import faces, matrix
from relay.audit import services as audit

admin.site.unregister(User)
admin.site.unregister(Group)

ROLES = frozenset(matrix.Role)


class Audited(ModelAdmin):  # type: ignore[misc]
    """Writes what a form changed into the audit log, in the transaction of the form."""

    noun = ""

    def told(self, pk: Any) -> dict[str, Any] | None:
        """A row as the audit log has it."""
        raise NotImplementedError

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        # Held to the end of the form's transaction, from before it locks any row: see `audit`.
        with audit.exclusive():
            form.before = self.told(obj.pk) if change else None
            super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        action = f"{self.noun}.{'change' if change else 'add'}"
        obj = form.instance
        with audit.change(faces.operator(request), action, target=obj) as held:
            held.before, held.after = form.before, self.told(obj.pk)
            held.happened = held.before != held.after

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with audit.change(faces.operator(request), f"{self.noun}.delete", target=obj) as held:
            held.before = self.told(obj.pk)
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with transaction.atomic():
            for obj in queryset:
                self.delete_model(request, obj)


@admin.register(User)
class OperatorAdmin(UserAdmin, Audited):  # type: ignore[type-arg]
    """Who may sign in. Only who has all rights may touch those who have them."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    noun = "account"
    actions = ("reset_second_factor",)

    @admin.action(description="Take the second factor away", permissions=["change"])
    def reset_second_factor(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """For those who lost theirs and their recovery codes."""
        with transaction.atomic():
            for user in queryset:
                if _within(request, user):
                    who = faces.operator(request)
                    with audit.change(who, "account.reset_second_factor", target=user) as held:
                        held.happened = bool(Authenticator.objects.filter(user=user).delete()[0])
        messages.success(request, "Passwords are enough for these accounts now")

    def told(self, pk: Any) -> dict[str, Any] | None:
        user = User.objects.filter(pk=pk).first()
        if user is None:
            return None
        fields = ("username", "email", "is_active", "is_staff", "is_superuser")
        permissions = user.user_permissions.values_list("content_type__app_label", "codename")
        return {
            **{name: getattr(user, name) for name in fields},
            "groups": sorted(user.groups.values_list("name", flat=True)),
            "permissions": sorted(f"{app}.{name}" for app, name in permissions),
        }

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _within(request, obj) and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _within(request, obj) and bool(super().has_delete_permission(request, obj))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = tuple(super().get_readonly_fields(request, obj))
        return fields if request.user.is_superuser else (*fields, "is_superuser")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        # Deleting some does not ask for each of them.
        found: QuerySet[User] = super().get_queryset(request)
        deleting = request.POST.get("action") == "delete_selected"
        if deleting and not request.user.is_superuser:
            found = found.filter(is_superuser=False)
        return found

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

    noun = "group"

    def told(self, pk: Any) -> dict[str, Any] | None:
        group = Group.objects.filter(pk=pk).first()
        if group is None:
            return None
        permissions = group.permissions.values_list("content_type__app_label", "codename")
        return {
            "name": group.name,
            "permissions": sorted(f"{app}.{name}" for app, name in permissions),
        }

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return not _is_role(obj) and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return not _is_role(obj) and bool(super().has_delete_permission(request, obj))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        found: QuerySet[Group] = super().get_queryset(request)
        deleting = request.POST.get("action") == "delete_selected"
        return found.exclude(name__in=ROLES) if deleting else found


def _within(request: HttpRequest, obj: Any) -> bool:
    return obj is None or request.user.is_superuser or not obj.is_superuser


def _is_role(obj: Any) -> bool:
    return obj is not None and obj.name in ROLES
