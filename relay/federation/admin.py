"""The records of other relays in the admin: what is decided about each, and a note.

How they do is in the console (`relay.dashboard.views.relays`).
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from proto.federation.domains import fold
from relay.access import faces
from relay.federation import services
from relay.federation.models import RelayNode


class RelayNodeForm(forms.ModelForm):  # type: ignore[type-arg]
    """A relay, whose name may be spelled in any way."""

    def clean_domain(self) -> str:
        return fold(self.cleaned_data["domain"])


@admin.register(RelayNode)
class RelayNodeAdmin(faces.PendingTold, ModelAdmin):  # type: ignore[misc]
    """Relays something was decided about, and those that turned up."""

    form = RelayNodeForm
    list_display = ("domain", "trusted", "paused", "blocked", "note", "updated")
    list_filter = ("trusted", "paused", "blocked")
    search_fields = ("domain", "note")
    fields = ("domain", "trusted", "paused", "blocked", "note")
    list_per_page = 50
    show_full_result_count = False

    def get_readonly_fields(
        self, request: HttpRequest, obj: RelayNode | None = None
    ) -> tuple[str, ...]:
        return ("domain",) if obj else ()

    def save_model(self, request: HttpRequest, obj: RelayNode, form: Any, change: bool) -> None:
        services.save(obj, actor=faces.operator(request))

    def delete_model(self, request: HttpRequest, obj: RelayNode) -> None:
        services.forget([obj.domain], actor=faces.operator(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        domains = queryset.values_list("domain", flat=True)
        services.forget(domains, actor=faces.operator(request))
