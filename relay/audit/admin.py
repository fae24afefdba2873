"""The audit log in the admin: to be read, filtered and exported, never changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from unfold.admin import ModelAdmin

from relay.access import faces, matrix
from relay.audit import services
from relay.audit.models import AuditEntry
from relay.ops import live_page


class NounFilter(admin.SimpleListFilter):
    """Actions by what they are about."""

    title = "about"
    parameter_name = "about"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        nouns = {action.name.partition(".")[0] for action in matrix.ACTIONS}
        return [(noun, noun) for noun in sorted(nouns)]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[AuditEntry]
    ) -> QuerySet[AuditEntry]:
        noun = self.value()
        return queryset.filter(action__startswith=f"{noun}.") if noun else queryset


@admin.register(AuditEntry)
class AuditEntryAdmin(ModelAdmin):  # type: ignore[misc]
    """Nothing here can be edited; the database would refuse it too."""

    list_display = (
        "number", "at", "actor", "face", "address", "action", "show_target", "show_change",
    )  # fmt: skip
    list_filter = ("face", NounFilter, "at")
    search_fields = ("=target", "^actor", "=address", "^action")
    search_help_text = "Actor, action, target or address"
    actions = ("export_selected",)
    fields = (
        "number", "at", "actor", "face", "address", "action", "target", "before_json",
        "after_json", "previous", "hash",
    )  # fmt: skip
    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_export_permission(self, request: HttpRequest) -> bool:
        return faces.operator(request).may(matrix.permission_of("audit.export"))

    @admin.action(description="Export as JSON lines", permissions=["export"])
    def export_selected(
        self, request: HttpRequest, queryset: QuerySet[AuditEntry]
    ) -> HttpResponse | StreamingHttpResponse:
        if not self.has_export_permission(request):
            raise PermissionDenied
        lines = services.export(queryset.order_by("number"), "jsonl", actor=faces.operator(request))
        return HttpResponse(
            "".join(lines),
            content_type="application/x-ndjson",
            headers={"Content-Disposition": 'attachment; filename="audit.jsonl"'},
        )

    @admin.display(description="target", ordering="target")
    def show_target(self, entry: AuditEntry) -> str:
        return live_page.cut(entry.target)

    @admin.display(description="change")
    def show_change(self, entry: AuditEntry) -> str:
        if entry.before_json == entry.after_json:
            return ""  # such as signing in: it happened, nothing was changed
        return live_page.cut(f"{entry.before_json} → {entry.after_json}")
