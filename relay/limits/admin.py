"""Limits and bans in the admin, through `relay.limits.services`."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from relay.access import faces
from relay.access.errors import NotFound
from relay.limits import services
from relay.limits.models import TwinLimit
from relay.ops.wording import counted
from relay.twins import listing as twins


class TwinLimitForm(forms.ModelForm):  # type: ignore[type-arg]
    """A decision about a twin that this relay met, or that is meant although it did not."""

    unknown = forms.BooleanField(
        label="Unknown to this relay",
        required=False,
        help_text="Accept a twin that this relay never met; its id may be misspelt.",
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if "twin" in cleaned and not cleaned.get("unknown"):
            try:
                twins.require_known(cleaned["twin"], "tick the box")
            except NotFound as error:
                self.add_error("twin", error.detail)
        return cleaned


@admin.register(TwinLimit)
class TwinLimitAdmin(faces.PendingTold, ModelAdmin):  # type: ignore[misc]
    """What is decided about single twins."""

    form = TwinLimitForm
    list_display = ("twin", "show_limit", "show_ban", "ban_reason", "banned_until", "updated")
    list_filter = ("banned",)
    search_fields = ("=twin", "ban_reason", "note")
    search_help_text = "Twin id, ban reason or note"
    actions = ("ban_selected", "lift_selected")
    fieldsets = (
        (None, {"fields": ("twin", "unknown")}),
        ("Limit", {"fields": (("count", "size"),)}),
        (
            "Waiting",
            {"fields": (("waiting_messages", "waiting_bytes", "waiting_queues"),)},
        ),
        ("Ban", {"fields": ("banned", "ban_reason", "banned_until")}),
        ("Note", {"fields": ("note",)}),
    )

    def get_readonly_fields(
        self, request: HttpRequest, obj: TwinLimit | None = None
    ) -> tuple[str, ...]:
        return ("twin",) if obj else ()

    def save_model(self, request: HttpRequest, obj: TwinLimit, form: Any, change: bool) -> None:
        services.save(obj, actor=faces.operator(request))

    def delete_model(self, request: HttpRequest, obj: TwinLimit) -> None:
        services.remove([obj.twin], actor=faces.operator(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[TwinLimit]) -> None:
        twins = queryset.values_list("twin", flat=True)
        services.remove(twins, actor=faces.operator(request))

    @admin.action(description="Ban", permissions=["change"])
    def ban_selected(self, request: HttpRequest, queryset: QuerySet[TwinLimit]) -> None:
        who = faces.operator(request)
        with faces.in_admin(request):
            for limit in queryset:
                services.ban(limit.twin, limit.ban_reason, actor=who)
            messages.success(request, f"{counted(len(queryset), 'twin')} banned")

    @admin.action(description="Lift the ban", permissions=["change"])
    def lift_selected(self, request: HttpRequest, queryset: QuerySet[TwinLimit]) -> None:
        who = faces.operator(request)
        with faces.in_admin(request):
            for limit in queryset:
                services.lift_ban(limit.twin, actor=who)
            messages.success(request, f"{counted(len(queryset), 'ban')} lifted")

    @admin.display(description="limit")
    def show_limit(self, limit: TwinLimit) -> str:
        if limit.count is None:
            return "the relay's"
        return f"{limit.count} messages, {limit.size} bytes" if limit.count else "none"

    @admin.display(description="ban")
    def show_ban(self, limit: TwinLimit) -> str | None:
        if not limit.banned:
            return None
        return "banned" if limit.ban_holds() else "over"
