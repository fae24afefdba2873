"""Traces in the admin: what is followed, and starting and stopping it."""

from __future__ import annotations

import contextlib
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from unfold.admin import ModelAdmin
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminIntegerFieldWidget

from relay.access import faces, matrix
from relay.access.errors import Away
from relay.trace import services, texts
from relay.trace.bounds import LIFETIME_S, MAX_LIFETIME_S, MIN_LIFETIME_S
from relay.trace.models import TraceOrder

SHOWN_EVENTS = 200


class TraceForm(forms.ModelForm):  # type: ignore[type-arg]
    """What an operator says to start one."""

    lifetime_s = forms.IntegerField(
        label="seconds",
        initial=LIFETIME_S,
        min_value=MIN_LIFETIME_S,
        max_value=MAX_LIFETIME_S,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="It ends by itself then; at most an hour.",
    )

    class Meta:
        model = TraceOrder
        fields = ("kind", "subject", "sample", "events_per_s")


class LiveChangeList(ChangeList):  # type: ignore[misc]
    """A page of orders, each with what became of it as `row.live`."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        with faces.in_admin(request):
            for trace in services.look(self.result_list):
                trace.row.live = trace  # type: ignore[attr-defined]


@admin.register(TraceOrder)
class TraceOrderAdmin(ModelAdmin):  # type: ignore[misc]
    """Orders are started and stopped, never changed."""

    form = TraceForm
    list_display = (
        *("id", "kind", "subject", "show_state", "show_figures", "started", "until", "started_by"),
    )
    list_filter = ("kind",)
    search_fields = ("=id", "subject", "=started_by")
    search_help_text = "Uid, twin, session, or who started it"
    actions = ("stop_selected",)
    fieldsets = (
        (None, {"fields": ("kind", "subject")}),
        ("How much", {"fields": (("lifetime_s", "sample", "events_per_s"),)}),
    )
    shown_fields = (
        *("kind", "subject", "sample", "events_per_s", "started", "started_by", "until"),
        *("stopped", "stopped_by", "show_state", "show_figures", "show_events"),
    )

    def get_fieldsets(self, request: HttpRequest, obj: TraceOrder | None = None) -> Any:
        return ((None, {"fields": self.shown_fields}),) if obj else self.fieldsets

    def get_readonly_fields(self, request: HttpRequest, obj: TraceOrder | None = None) -> Any:
        return self.shown_fields if obj else ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(matrix.permission_of("trace.start"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_stop_permission(self, request: HttpRequest) -> bool:
        """For the action."""
        return request.user.has_perm(matrix.permission_of("trace.stop"))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LiveChangeList]:
        return LiveChangeList

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        with faces.in_admin(request):
            page: HttpResponse = super().changeform_view(
                request, object_id, form_url, extra_context
            )
            return page
        return HttpResponseRedirect(reverse("admin:relay_trace_traceorder_changelist"))

    def save_model(
        self, request: HttpRequest, obj: TraceOrder, form: TraceForm, change: bool
    ) -> None:
        row = services.start(
            obj.kind,
            obj.subject,
            actor=faces.operator(request),
            lifetime_s=form.cleaned_data["lifetime_s"],
            sample=obj.sample,
            events_per_s=obj.events_per_s,
        )
        obj.__dict__.update(row.__dict__)

    @admin.action(description="Stop", permissions=["stop"])
    def stop_selected(self, request: HttpRequest, queryset: QuerySet[TraceOrder]) -> None:
        who = faces.operator(request)
        with faces.in_admin(request):
            for row in queryset:
                services.stop(row.id, actor=who)
            messages.success(request, f"{len(queryset)} traces are over")

    @admin.display(description="state")
    def show_state(self, row: TraceOrder) -> str:
        trace = _live(row)
        return "unknown: Redis does not answer" if trace is None else trace.state.value

    @admin.display(description="noted")
    def show_figures(self, row: TraceOrder) -> str:
        trace = _live(row)
        if trace is None:
            return "-"
        parts = [f"{trace.events} events"]
        if trace.skipped:
            parts.append(f"{trace.skipped} messages not followed: the rate was reached")
        if trace.lost:
            parts.append(f"{trace.lost} events lost")
        return ", ".join(parts)

    @admin.display(description="latest events")
    def show_events(self, row: TraceOrder) -> str:
        try:
            noted = services.latest(row.id, SHOWN_EVENTS)
        except Away as error:
            return error.detail
        if not noted:
            return "none, or older than an hour"
        lines = format_html_join("\n", "{}", ((texts.event_line(each.event),) for each in noted))
        return format_html('<pre class="overflow-x-auto">{}</pre>', lines)


def _live(row: TraceOrder) -> services.Trace | None:
    """What became of an order; None when Redis does not answer."""
    found: services.Trace | None = getattr(row, "live", None)
    if found is None:
        with contextlib.suppress(Away):
            (found,) = services.look([row])
    return found
