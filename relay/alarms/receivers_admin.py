"""Rules and receivers of alarms in the admin: what owners decide."""

from __future__ import annotations

import contextlib
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminPasswordWidget

from relay.access import faces
from relay.access.errors import NotFound
from relay.alarms import checks, receivers, services
from relay.alarms.forms import in_form
from relay.alarms.models import Delivery, Receiver, ReceiverKind, RuleOverride
from relay.alarms.rules import BY_KEY, Override
from relay.ops import live_page

RULE_HEADERS = ("rule", "severity", "threshold", "ends", "hold", "state", "what it is")


class RuleForm(forms.ModelForm):  # type: ignore[type-arg]
    """Numbers of one rule; empty fields are its defaults."""

    class Meta:
        model = RuleOverride
        fields = ("threshold", "clear", "hold_s", "enabled")
        labels = {"hold_s": "Hold (seconds)"}  # noqa: RUF012

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        with in_form(self):
            override = Override(
                found.get("threshold"),
                found.get("clear"),
                found.get("hold_s"),
                bool(found.get("enabled")),
            )
            checks.check_rule(BY_KEY[self.instance.rule], override)
        return found


@admin.register(RuleOverride)
class RuleAdmin(ModelAdmin):  # type: ignore[misc]
    """All rules; a row in the table has only who was changed."""

    form = RuleForm
    fields = ("show_rule", "threshold", "clear", "hold_s", "enabled", "show_runbook")
    readonly_fields = ("show_rule", "show_runbook")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> RuleOverride | None:
        if object_id not in BY_KEY:
            return None
        found: RuleOverride | None = super().get_object(request, object_id, from_field)
        return found or RuleOverride(rule=object_id)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = [self._row(state) for state in services.list_rules()]
        table = live_page.LiveTable("Alarm rules", RULE_HEADERS, rows, "No rules")
        return live_page.render(self, request, table)

    def save_model(self, request: HttpRequest, obj: RuleOverride, form: Any, change: bool) -> None:
        services.set_rule(
            obj.rule,
            threshold=obj.threshold,
            clear=obj.clear,
            hold_s=obj.hold_s,
            enabled=obj.enabled,
            actor=faces.operator(request),
        )

    def log_change(self, request: HttpRequest, obj: RuleOverride, message: Any) -> Any:
        """The audit log has it; Django's own cannot refer to a row that may be gone."""

    @admin.display(description="rule")
    def show_rule(self, row: RuleOverride) -> str:
        rule = BY_KEY[row.rule]
        limits = rule.limits
        numbers = f"threshold {limits.threshold:g}, clear {limits.clear:g}, hold {limits.hold_s:g}"
        return f"{rule.title} ({rule.key}): by default {numbers} s, in {rule.unit or 'yes or no'}"

    @admin.display(description="what to do")
    def show_runbook(self, row: RuleOverride) -> str:
        return BY_KEY[row.rule].runbook_text

    def _row(self, state: services.RuleState) -> tuple[Any, ...]:
        rule, limits = state.rule, state.limits
        address = reverse("admin:relay_alarms_ruleoverride_change", args=[rule.key])
        compared = "at least" if limits.rising else "at most"
        status = "changed" if state.changed else "as delivered"
        if state.error:
            status = f"unknown: {state.error}"
        if not state.enabled:
            status = "off"
        return (
            format_html(
                '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>',
                address,
                rule.key,
            ),
            rule.severity,
            f"{compared} {limits.threshold:g} {rule.unit}" if rule.unit else "yes",
            f"{limits.clear:g} {rule.unit}" if rule.unit else "no",
            f"{limits.hold_s:g} s",
            live_page.cut(status),
            rule.title,
        )


class ReceiverForm(forms.ModelForm):  # type: ignore[type-arg]
    """Checked by the service. The secret is never shown again."""

    secret = forms.CharField(
        required=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        help_text="Webhooks are signed with it. Empty: a new receiver gets one made, shown once; "
        "one that is there keeps its own.",
    )

    class Meta:
        model = Receiver
        fields = ("name", "kind", "target", "secret", "min_severity", "enabled")

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        given = found.get("secret", "")
        kept = Receiver.objects.filter(pk=self.instance.pk).first() if self.instance.pk else None
        kind = kept.kind if kept else found.get("kind", "")
        secret = given or (kept.secret if kept else "")
        if kind == ReceiverKind.WEBHOOK and not secret:
            secret = found["secret"] = self.made = receivers.new_secret()
        if not self.errors:
            meant = kept or Receiver(kind=kind)
            for name, value in {**found, "kind": kind, "secret": secret}.items():
                setattr(meant, name, value)
            with in_form(self):
                receivers.check(meant)
        return found


@admin.register(Receiver)
class ReceiverAdmin(ModelAdmin):  # type: ignore[misc]
    """Who is told."""

    form = ReceiverForm
    list_display = (
        "name", "kind", "show_target", "min_severity", "enabled", "last_success", "last_error",
    )  # fmt: skip
    actions = ("send_test",)

    def has_test_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relay_alarms.test_receiver"))

    def get_fields(self, request: HttpRequest, obj: Receiver | None = None) -> tuple[str, ...]:
        if obj is not None and not self.has_change_permission(request, obj):
            return ("name", "kind", "show_target", "min_severity", "enabled")
        return ("name", "kind", "target", "secret", "min_severity", "enabled")

    def get_readonly_fields(
        self, request: HttpRequest, obj: Receiver | None = None
    ) -> tuple[str, ...]:
        return ("kind", "show_target") if obj else ()

    def save_model(self, request: HttpRequest, obj: Receiver, form: Any, change: bool) -> None:
        who = faces.operator(request)
        given = form.cleaned_data
        fields = {name: given[name] for name in ("name", "target", "min_severity", "enabled")}
        if change:
            if given.get("secret"):
                fields["secret"] = given["secret"]
            receivers.change_receiver(obj.pk, actor=who, **fields)
            return
        added = receivers.add_receiver(
            kind=given["kind"], secret=given.get("secret", ""), actor=who, **fields
        )
        obj.pk = added.receiver.pk
        if getattr(form, "made", ""):
            messages.warning(
                request, f"The secret of its signatures, shown only this once: {added.secret}"
            )

    def delete_model(self, request: HttpRequest, obj: Receiver) -> None:
        receivers.remove_receiver(obj.pk, actor=faces.operator(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Receiver]) -> None:
        for found in queryset:
            with contextlib.suppress(NotFound):
                receivers.remove_receiver(found.pk, actor=faces.operator(request))

    @admin.action(description="Send a test", permissions=["test"])
    def send_test(self, request: HttpRequest, queryset: QuerySet[Receiver]) -> None:
        for receiver in queryset:
            with faces.in_admin(request):
                answer = receivers.send_test(receiver.pk, actor=faces.operator(request))
                if answer.ok:
                    messages.success(request, f"{receiver} took the test: {answer.text}")
                else:
                    messages.error(request, f"{receiver} did not take it: {answer.text}")

    @admin.display(description="target")
    def show_target(self, receiver: Receiver) -> str:
        return receivers.shown_target(receiver)


@admin.register(Delivery)
class DeliveryAdmin(ModelAdmin):  # type: ignore[misc]
    """What receivers were told."""

    list_display = ("created", "receiver", "show_what", "outcome", "tries", "error", "ended")
    list_filter = ("outcome", "receiver")
    list_select_related = ("receiver",)
    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # Those of a receiver go with it, which the admin asks here about.
        return bool(request.user.has_perm("relay_alarms.delete_receiver"))

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {}

    @admin.display(description="what")
    def show_what(self, delivery: Delivery) -> str:
        alarm = delivery.body["alarm"]
        return f"{delivery.body['type']} {alarm['rule']} {alarm['subject']}".strip()
