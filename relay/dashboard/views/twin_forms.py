"""Pages that add, change and remove one twin of the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from proto.identity.bounds import MAX_TWIN
from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.pages import page
from relay.twins import services
from relay.twins.bounds import MAX_RELAYS_BYTES
from relay.twins.fields import (
    NO_RELAYS,
    FieldError,
    TwinValues,
    join_relays,
    own_relay,
    parse_pk,
    parse_relays,
    parse_signer,
    to_texts,
)
from relay.twins.models import Twin
from relay.twins.source import split_relays


class TwinForm(forms.Form):
    """A twin, with its binary keys as text."""

    id = forms.IntegerField(label="Twin", min_value=1, max_value=MAX_TWIN)
    account = forms.CharField(
        max_length=70, help_text="ss58 address, or 0x and 64 hexadecimal digits."
    )
    pk = forms.CharField(
        label="Encryption key (pk)",
        max_length=70,
        required=False,
        help_text="0x and 66 hexadecimal digits; empty: messages to the twin cannot be encrypted.",
    )
    relays = forms.CharField(
        max_length=MAX_RELAYS_BYTES,
        required=False,
        help_text="Host names joined by an underscore.",
    )

    def __init__(self, data: Any, twin: Twin | None = None) -> None:
        initial = {"relays": join_relays(own_relay())}
        if twin is not None:
            names = ("id", "account", "pk", "relays")
            initial = dict(zip(names, to_texts(_values(twin)), strict=True))
        super().__init__(data, initial=initial)
        if twin is not None:  # the id identifies the twin
            self.fields["id"].disabled = True

    def clean_id(self) -> int:
        number: int = self.cleaned_data["id"]
        if not self.fields["id"].disabled and Twin.objects.filter(pk=number).exists():
            raise forms.ValidationError(f"Twin {number} exists; change it on its page.")
        return number

    def clean_account(self) -> Any:
        return self._parsed(parse_signer, "account")

    def clean_pk(self) -> Any:
        return self._parsed(parse_pk, "pk")

    def clean_relays(self) -> Any:
        return self._parsed(parse_relays, "relays")

    def _parsed(self, parse: Callable[[str], Any], name: str) -> Any:
        try:
            return parse(self.cleaned_data[name])
        except FieldError as error:
            raise forms.ValidationError(str(error)) from None


@page("twin.add")
def add(request: HttpRequest) -> HttpResponseBase:
    """Add a twin to the registry."""
    question = Question("Add a twin", "Add", "The twin can connect within a second.")
    return _put(request, question, TwinForm(posted(request)), reverse("console:twins"))


@page("twin.put")
def change(request: HttpRequest, twin: int) -> HttpResponseBase:
    """Change a twin of the registry."""
    form = TwinForm(posted(request), _stored(twin))
    question = Question(f"Change twin {twin}", "Change", "The change takes effect within a second.")
    return _put(request, question, form, reverse("console:twin", args=[twin]))


@page("twin.remove")
def remove(request: HttpRequest, twin: int) -> HttpResponseBase:
    """Remove a twin from the registry, or one left over from a former registry."""
    stored = _stored(twin)
    if not services.removable(stored.source):
        raise services.of_chain()

    def perform(actor: Actor) -> str:
        services.remove_twins([twin], actor=actor)
        return f"Twin {twin} is removed"

    question = Question(
        f"Remove twin {twin}",
        "Remove",
        "The twin cannot connect any more, and the relay refuses messages to it.",
        loses=("the record of the twin: account, encryption key and relays",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:twins"))


def _put(request: HttpRequest, question: Question, form: TwinForm, back: str) -> HttpResponseBase:
    if not services.in_registry():
        raise services.of_chain()

    def perform(actor: Actor) -> str:
        values = TwinValues(**form.cleaned_data)
        added = services.put_twin(values, actor=actor)
        done = f"Twin {values.id} is {'added' if added else 'changed'}"
        return done if values.relays else f"{done}: {NO_RELAYS}"

    return act(request, question, perform, back, form)


def _stored(twin: int) -> Twin:
    found = Twin.objects.filter(pk=twin).first() if twin <= MAX_TWIN else None
    if found is None:
        raise NotFound(f"there is no twin {twin}")
    return found


def _values(twin: Twin) -> TwinValues:
    key = bytes(twin.encryption_key) if twin.encryption_key else None
    return TwinValues(twin.id, bytes(twin.account), key, split_relays(twin.relays))
