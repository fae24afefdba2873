"""Deciding about limits and bans, one question each."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.forms.models import model_to_dict
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone

from proto.identity.bounds import MAX_TWIN
from proto.limits.addresses import MAX_NETWORK_CHARS
from relay.access.actor import Actor
from relay.access.errors import Invalid, NotFound
from relay.audit import services as audit
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.pages import page
from relay.dashboard.tables import given as given_text
from relay.dashboard.views.twins import limit_of
from relay.limits import addresses, defaults, listing, services
from relay.limits.models import MAX_NOTE_CHARS, MAX_REASON_CHARS, TwinLimit
from relay.ops import storable
from relay.sessions import listing as sessions
from relay.twins import listing as twins

_ZEROES: Final = "0 messages with 0 bytes is no limit."
_HOURS: Final = (("1", "1 hour"), ("24", "a day"), ("168", "a week"), ("720", "30 days"))


class BanForm(forms.Form):
    """Why, and for how long."""

    reason = forms.CharField(
        max_length=MAX_REASON_CHARS,
        required=False,
        help_text="For operators and the audit log.",
    )
    lasts = forms.ChoiceField(
        label="For",
        choices=[("", "good: until it is lifted"), *_HOURS, ("until", "until a time I name")],
        required=False,
    )
    until = forms.DateTimeField(
        label="Until (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"],
        help_text="Only with the last choice above.",
    )

    def clean(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        named, given = cleaned.get("lasts") == "until", cleaned.get("until")
        if named and given is None and "until" not in self.errors:
            self.add_error("until", "Name the time.")
        elif given is not None and not named:
            self.add_error("lasts", "Choose the last one, or take the time away.")
        elif given is not None and given <= timezone.now():
            self.add_error("until", "This has passed.")
        elif given is not None and not storable.is_within_reach(given):
            self.add_error("until", f"After {storable.LAST_YEAR} there are no times.")
        return cleaned

    @property
    def ends(self) -> datetime | None:
        """When it is lifted; None: never by itself."""
        lasts = self.cleaned_data["lasts"]
        if lasts == "until":
            named: datetime = self.cleaned_data["until"]
            return named
        return timezone.now() + timedelta(hours=int(lasts)) if lasts else None


def _unknown_field() -> forms.BooleanField:
    return forms.BooleanField(
        label="Unknown to this relay",
        required=False,
        help_text="Accept a twin that this relay never met; its id may be misspelt.",
    )


class TwinBanForm(BanForm):
    """A ban of a twin."""

    twin = forms.IntegerField(min_value=1, max_value=MAX_TWIN)
    unknown = _unknown_field()
    field_order = ("twin",)


class AddressBanForm(BanForm):
    """A ban of an address or a network."""

    network = forms.CharField(
        label="Address or network",
        max_length=MAX_NETWORK_CHARS,
        help_text="Such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/64; a host of IPv6 has a /64.",
    )
    force = forms.BooleanField(
        label="Even if it is mine",
        required=False,
        help_text="Ban it also where it holds your own address or those of the relay's machine.",
    )
    field_order = ("network",)


@page("ban.set")
def ban(request: HttpRequest) -> HttpResponseBase:
    """Ban a twin."""
    twin = _named(request)
    form = TwinBanForm(posted(request), initial={"twin": twin})

    def perform(actor: Actor) -> str:
        given = form.cleaned_data
        _check_known(given)
        services.ban(given["twin"], given["reason"], form.ends, actor=actor)
        return f"Twin {given['twin']} is banned"

    held = sessions.open_of([twin]).get(twin, 0) if twin else 0
    question = Question(
        f"Ban twin {twin}" if twin else "Ban a twin",
        "Ban",
        f"Its sessions{f', {held:,} now,' if held else ''} end within a second (code 4004). It "
        "cannot sign in, and messages from it and to it are refused. Messages that wait for it "
        "stay until they expire or are purged.",
        danger=True,
    )
    return act(request, question, perform, reverse("console:limits"), form)


@page("ban.lift")
def lift(request: HttpRequest, twin: int) -> HttpResponseBase:
    """Let a banned twin in again."""
    limit = _decided(twin)

    def perform(actor: Actor) -> str:
        services.lift_ban(twin, actor=actor)
        return f"Twin {twin} may come again"

    why = f" It was banned for: {limit.ban_reason}." if limit.ban_reason else ""
    question = Question(
        f"Lift the ban of twin {twin}", "Lift", f"It may sign in again within a second.{why}"
    )
    return act(request, question, perform, reverse("console:limits"))


@page("ban.set")
def ban_address(request: HttpRequest) -> HttpResponseBase:
    """Ban an address or a network."""
    named = given_text(request, "network")[:MAX_NETWORK_CHARS]
    present = addresses.find(named)
    initial = {"network": named, "reason": present and present.reason}
    form = AddressBanForm(posted(request), initial=initial)

    def perform(actor: Actor) -> str:
        given = form.cleaned_data
        row = addresses.ban(
            given["network"], given["reason"], form.ends, actor=actor, force=given["force"]
        )
        return f"{row.network} is banned"

    question = Question(
        f"Ban {named}" if named else "Ban an address",
        "Ban",
        "The sessions from there end within a second (code 4007), and every request from there to "
        "the relay's public listener is answered with 403. The console stays within reach.",
        danger=True,
    )
    return act(request, question, perform, reverse("console:limits"), form)


@page("ban.lift")
def lift_address(request: HttpRequest) -> HttpResponseBase:
    """Serve a banned address or network again."""
    named = given_text(request, "network")
    ban = addresses.find(named)
    if ban is None:
        raise NotFound(f"{named} is not banned" if named else "name a banned address")

    def perform(actor: Actor) -> str:
        return f"{addresses.lift(ban.network, actor=actor)} is served again"

    why = f" It was banned for: {ban.reason}." if ban.reason else ""
    question = Question(
        f"Lift the ban of {ban.network}", "Lift", f"It is served again within a second.{why}"
    )
    return act(request, question, perform, reverse("console:limits"))


def _bound(label: str, help_text: str) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        min_value=1,
        max_value=defaults.MAX_VALUE,
        required=False,
        help_text=f"{help_text} Empty: the bound of all twins.",
    )


class LimitForm(forms.Form):
    """Limits of its own for a twin, and a note."""

    twin = forms.IntegerField(min_value=1, max_value=MAX_TWIN)
    count = forms.IntegerField(
        label="Messages a minute", min_value=0, max_value=defaults.MAX_VALUE, required=False
    )
    size = forms.IntegerField(
        label="Bytes a minute",
        min_value=0,
        max_value=defaults.MAX_VALUE,
        required=False,
        help_text=f"Also the largest single message. {_ZEROES} Both empty: the limit of all twins.",
    )
    waiting_messages = _bound("Messages that may wait", "For all its sessions, and from it.")
    waiting_bytes = _bound("Bytes that may wait", "The same in the memory of Redis.")
    waiting_queues = _bound("Queues that may have messages", "Of its sessions, and from it.")
    note = forms.CharField(
        max_length=MAX_NOTE_CHARS,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="For operators.",
    )
    unknown = _unknown_field()


@page("limit.set")
def limit(request: HttpRequest) -> HttpResponseBase:
    """Give a twin a limit of its own, or take it back."""
    twin = _named(request)
    present = listing.of([twin]).get(twin) if twin else None
    initial = model_to_dict(present) if present else {}
    form = LimitForm(posted(request), initial={**initial, "twin": twin})

    def perform(actor: Actor) -> str:
        given = dict(form.cleaned_data)
        _check_known(given)
        del given["unknown"]
        with audit.exclusive():  # nobody bans it meanwhile
            row = listing.of([given["twin"]]).get(given["twin"]) or TwinLimit()
            for name, value in given.items():
                setattr(row, name, value)
            services.save(row, actor=actor)
        if given["count"] is None:
            return f"The limit of all twins holds for twin {given['twin']}"
        return f"Twin {given['twin']} has a limit of its own"

    question = Question(
        f"Limit twin {twin}" if twin else "Limit a twin",
        "Set",
        "It holds within a second, in place of the limit of all twins.",
    )
    return act(request, question, perform, reverse("console:limits"), form)


@page("limit.remove")
def remove(request: HttpRequest, twin: int) -> HttpResponseBase:
    """Forget all that was decided about a twin."""
    present = _decided(twin)

    def perform(actor: Actor) -> str:
        services.remove([twin], actor=actor)
        return f"Nothing is decided about twin {twin} any more"

    loses = []
    if present.banned:
        loses.append(f"its ban{f' for {present.ban_reason}' if present.ban_reason else ''}")
    if present.count is not None:
        loses.append(f"its limit: {limit_of(present)} a minute")
    if present.note:
        loses.append(f"the note: {present.note}")
    question = Question(
        f"Forget what is decided about twin {twin}",
        "Forget",
        "The limit of all twins holds for it then, and it may sign in.",
        loses=tuple(loses),
        danger=True,
    )
    return act(request, question, perform, reverse("console:limits"))


class DefaultForm(forms.Form):
    """The limit of all twins."""

    count = forms.IntegerField(label="Messages a minute", min_value=0, max_value=defaults.MAX_VALUE)
    size = forms.IntegerField(
        label="Bytes a minute",
        min_value=0,
        max_value=defaults.MAX_VALUE,
        help_text=f"Also the largest single message. {_ZEROES}",
    )


@page("limit.default")
def default(request: HttpRequest) -> HttpResponseBase:
    """Change the limit of all twins."""
    present = defaults.get()
    initial = {"count": present.count, "size": present.size}
    form = DefaultForm(posted(request), initial=initial)

    def perform(actor: Actor) -> str:
        defaults.put(form.cleaned_data["count"], form.cleaned_data["size"], actor=actor)
        return "The limit of all twins is changed"

    question = Question(
        "Limit all twins",
        "Set",
        "Each twin without a limit of its own may send so much, within a second. It holds until "
        "somebody goes back to what the settings say.",
    )
    return act(request, question, perform, reverse("console:limits"), form)


@page("limit.default")
def clear_default(request: HttpRequest) -> HttpResponseBase:
    """Go back to the limit that the settings say."""
    present = defaults.get()

    def perform(actor: Actor) -> str:
        defaults.clear(actor=actor)
        return "The limit of all twins is that of the settings"

    question = Question(
        "Limit all twins as the settings say",
        "Go back",
        "What `limits.count` and `limits.size` say holds within a second.",
        loses=(f"the limit that is set now: {present.count:,} and {present.size:,} bytes",),
    )
    return act(request, question, perform, reverse("console:limits"))


def _check_known(given: dict[str, Any]) -> None:
    """Go on only with a twin that this relay met, unless the form says otherwise.

    Raises:
        Invalid: its id may be misspelt.
    """
    if given["unknown"]:
        return
    try:
        twins.require_known(given["twin"], "tick the box")
    except NotFound as error:
        raise Invalid(fields={"twin": error.detail}) from None


def _named(request: HttpRequest) -> int | None:
    """The twin that the address names."""
    text = request.GET.get("twin", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None


def _decided(twin: int) -> TwinLimit:
    found = listing.of([twin]).get(twin) if twin <= MAX_TWIN else None
    if found is None:
        raise NotFound(f"nothing is decided about twin {twin}")
    return found
