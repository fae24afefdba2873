"""Pages that add, change and remove a receiver of alarms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.actor import Actor
from relay.alarms import receivers
from relay.alarms.models import (
    MAX_NAME_CHARS,
    MAX_SECRET_CHARS,
    MAX_URL_CHARS,
    Receiver,
    ReceiverKind,
)
from relay.alarms.rules import Severity
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.pages import page, render
from relay.dashboard.views.alarms import alarm_tabs


class ReceiverForm(forms.Form):
    """A receiver. Its secret is never shown again."""

    name = forms.CharField(max_length=MAX_NAME_CHARS)
    kind = forms.ChoiceField(choices=ReceiverKind.choices)
    target = forms.CharField(
        max_length=MAX_URL_CHARS, help_text="https:// address of a webhook, or an e-mail address."
    )
    secret = forms.CharField(
        max_length=MAX_SECRET_CHARS,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="Key that signs webhooks. Empty: the relay generates one and shows it once.",
    )
    min_severity = forms.ChoiceField(
        label="Lowest severity",
        choices=[(each.value, each.value) for each in Severity],
        initial=Severity.WARNING.value,
    )
    enabled = forms.BooleanField(required=False, initial=True)

    def __init__(self, data: Any, receiver: Receiver | None = None) -> None:
        names = ("name", "target", "min_severity", "enabled")
        initial = {name: getattr(receiver, name) for name in names} if receiver else None
        super().__init__(data, initial=initial)
        if receiver is not None:
            del self.fields["kind"]
            self.fields["secret"].help_text = "Key that signs webhooks. Empty: no change."


@page("receiver.add")
def add(request: HttpRequest) -> HttpResponseBase:
    """Add a receiver."""
    form = ReceiverForm(posted(request))

    def perform(actor: Actor) -> str | HttpResponseBase:
        added = receivers.add_receiver(**form.cleaned_data, actor=actor)
        if added.secret and not form.cleaned_data["secret"]:
            return _shown_once(request, added)
        return f"{added.receiver} receives alarms"

    question = Question(
        "Add a receiver", "Add", "The receiver gets notices of the alarms that fire now at once."
    )
    return act(request, question, perform, reverse("console:alarms_receivers"), form)


@page("receiver.change")
def change(request: HttpRequest, receiver_id: int) -> HttpResponseBase:
    """Change a receiver; its kind cannot be changed."""
    found = receivers.get_receiver(receiver_id)
    form = ReceiverForm(posted(request), found)

    def perform(actor: Actor) -> str:
        given = {name: value for name, value in form.cleaned_data.items() if name != "secret"}
        if form.cleaned_data["secret"]:
            given["secret"] = form.cleaned_data["secret"]
        return f"{receivers.change_receiver(receiver_id, actor=actor, **given)} is changed"

    question = Question(f"Change the receiver {found}", "Change")
    return act(request, question, perform, reverse("console:alarms_receivers"), form)


@page("receiver.remove")
def remove(request: HttpRequest, receiver_id: int) -> HttpResponseBase:
    """Remove a receiver and its notices."""
    found = receivers.get_receiver(receiver_id)

    def perform(actor: Actor) -> str:
        receivers.remove_receiver(receiver_id, actor=actor)
        return f"{found} is removed"

    question = Question(
        f"Remove the receiver {found}",
        "Remove",
        loses=("the settings of the receiver and all its notices, including waiting ones",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:alarms_receivers"))


def _shown_once(request: HttpRequest, added: receivers.Added) -> HttpResponseBase:
    """Return the one page with the secret: a message would be stored in a session or a cookie."""
    context = {
        "tabs": alarm_tabs(request, "alarms_receivers"),
        "owner": added.receiver.name,
        "what": "the secret of its signatures",
        "secret": added.secret,
        "note": "The receiver needs the secret to verify the signatures of notices.",
        "back": reverse("console:alarms_receivers"),
    }
    return render(request, "relay_dashboard/secret_made.html", "New receiver", context)
