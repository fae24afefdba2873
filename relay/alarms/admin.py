"""Alarms in the admin: what fires, the rules, who is told, and what happened."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html, linebreaks
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from relay.access import faces
from relay.alarms import checks, figures, services
from relay.alarms import receivers_admin as receivers_admin
from relay.alarms.forms import in_form
from relay.alarms.models import Alarm, AlarmEvent, Silence, State


class ReadOnly(ModelAdmin):  # type: ignore[misc]
    """Rows that are looked at, and changed by actions at most."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class Shown(admin.SimpleListFilter):
    """Without a choice, what an operator has to know: not what is pending or over."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("all", "all"), *((state.value, state.value) for state in State)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Alarm]) -> QuerySet[Alarm]:
        if self.value() == "all":
            return queryset
        if self.value() in State.values:
            return queryset.filter(state=self.value())
        return queryset.exclude(state__in=(State.PENDING, State.RESOLVED))


@admin.register(Alarm)
class AlarmAdmin(ReadOnly):
    """What fires, and what did."""

    list_display = (
        "show_title", "state", "severity", "since", "show_value", "detail", "acknowledged_by",
        "note", "silenced_until",
    )  # fmt: skip
    list_filter = (Shown, "severity", "rule")
    search_fields = ("rule", "subject", "detail")
    actions = ("acknowledge", "unacknowledge", "silence_hour", "silence_day")
    fields = (
        "show_title", "state", "severity", "since", "fired_at", "show_value", "detail",
        "acknowledged_by", "acknowledged_at", "note", "silenced_until", "repeats", "show_runbook",
    )  # fmt: skip

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relay_alarms.acknowledge_alarm"))

    def has_silence_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relay_alarms.silence_alarm"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        complaint = figures.complaint()
        if complaint and request.method == "GET":
            messages.warning(request, f"{complaint.capitalize()}: what is shown is as old")
        page: HttpResponse = super().changelist_view(request, extra_context)
        return page

    @admin.action(description="Acknowledge", permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Alarm]) -> None:
        for alarm in queryset:
            with faces.in_admin(request):
                services.acknowledge(alarm.pk, actor=faces.operator(request))
                messages.success(request, f"{alarm}: acknowledged")

    @admin.action(description="Take the acknowledgement back", permissions=["acknowledge"])
    def unacknowledge(self, request: HttpRequest, queryset: QuerySet[Alarm]) -> None:
        for alarm in queryset:
            with faces.in_admin(request):
                services.unacknowledge(alarm.pk, actor=faces.operator(request))
                messages.success(request, f"{alarm}: not acknowledged any more")

    @admin.action(description="Silence for 1 h", permissions=["silence"])
    def silence_hour(self, request: HttpRequest, queryset: QuerySet[Alarm]) -> None:
        self._silence(request, queryset, 1)

    @admin.action(description="Silence for a day", permissions=["silence"])
    def silence_day(self, request: HttpRequest, queryset: QuerySet[Alarm]) -> None:
        self._silence(request, queryset, 24)

    def _silence(self, request: HttpRequest, queryset: QuerySet[Alarm], hours: int) -> None:
        until = timezone.now() + timedelta(hours=hours)
        for alarm in queryset:
            with faces.in_admin(request):
                services.silence(
                    alarm.rule, alarm.subject or "*", until=until, actor=faces.operator(request)
                )
                messages.success(request, f"{alarm}: silenced until {until:%Y-%m-%d %H:%M} UTC")

    @admin.display(description="alarm", ordering="rule")
    def show_title(self, alarm: Alarm) -> str:
        return str(alarm)

    @admin.display(description="reading")
    def show_value(self, alarm: Alarm) -> str:
        unit = alarm.definition.unit if alarm.definition else ""
        return "unknown" if alarm.value is None else f"{alarm.value:g} {unit}".strip()

    @admin.display(description="what to do")
    def show_runbook(self, alarm: Alarm) -> SafeString:
        rule = alarm.definition
        return _paragraphs(rule.runbook_text) if rule else SafeString("")


@admin.register(AlarmEvent)
class AlarmEventAdmin(ReadOnly):
    """What happened."""

    list_display = ("at", "kind", "rule", "subject", "severity", "detail", "by")
    list_filter = ("kind", "rule", "severity")
    search_fields = ("subject", "detail")


class SilenceForm(forms.ModelForm):  # type: ignore[type-arg]
    """Checked by the service, which says the same to everybody."""

    class Meta:
        model = Silence
        fields = ("rule", "subject", "until", "note")

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        if found.keys() >= {"rule", "subject", "until"}:
            with in_form(self):
                checks.check_silence(
                    found["rule"], found["subject"], found["until"], timezone.now()
                )
        return found


@admin.register(Silence)
class SilenceAdmin(ModelAdmin):  # type: ignore[misc]
    """What receivers hear nothing of."""

    list_display = ("rule", "subject", "until", "by", "note")
    form = SilenceForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relay_alarms.silence_alarm"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("relay_alarms.silence_alarm"))

    def save_model(self, request: HttpRequest, obj: Silence, form: Any, change: bool) -> None:
        made = services.silence(
            obj.rule, obj.subject, until=obj.until, note=obj.note, actor=faces.operator(request)
        )
        obj.pk = made.pk

    def delete_model(self, request: HttpRequest, obj: Silence) -> None:
        services.end_silence(obj.pk, actor=faces.operator(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Silence]) -> None:
        for found in queryset:
            services.end_silence(found.pk, actor=faces.operator(request))


def _paragraphs(text: str) -> SafeString:
    return format_html("{}", SafeString(linebreaks(text, autoescape=True)))
