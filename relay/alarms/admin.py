"""Receivers of alarms in the admin: their form. All else of alarms is in the console."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminPasswordWidget

from relay.access import faces
from relay.alarms import receivers
from relay.alarms.forms import in_form
from relay.alarms.models import Receiver, ReceiverKind
from relay.dashboard.views.alarm_receivers import receiver_made


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

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The console has the list, and forms lead back to it."""
        return HttpResponseRedirect(reverse("console:alarms_receivers"))

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
        form.instance.shown_once = added.secret if getattr(form, "made", "") else ""

    def response_add(
        self, request: HttpRequest, obj: Receiver, post_url_continue: str | None = None
    ) -> HttpResponse:
        """A secret that was made is in this answer and nowhere else."""
        if secret := getattr(obj, "shown_once", ""):
            return receiver_made(request, obj, secret)
        return super().response_add(request, obj, post_url_continue)  # type: ignore[no-any-return]

    def delete_model(self, request: HttpRequest, obj: Receiver) -> None:
        receivers.remove_receiver(obj.pk, actor=faces.operator(request))

    @admin.display(description="target")
    def show_target(self, receiver: Receiver) -> str:
        return receivers.shown_target(receiver)
