"""Django's own accounts and groups, in the theme of the site."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class OperatorAdmin(UserAdmin, ModelAdmin):  # type: ignore[type-arg, misc]
    """Who may sign in."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class RoleAdmin(GroupAdmin, ModelAdmin):  # type: ignore[misc]
    """What groups of operators may do."""
