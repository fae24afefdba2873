"""Actions on limits and bans, with one question each."""

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

_ZEROES: Final = "0 messages and 0 bytes: no limit."
_HOURS: Final = (("1", "1 hour"), ("24", "a day"), ("168", "a week"), ("720", "30 days"))


class BanForm(forms.Form):
    """The reason and duration of a ban."""

    reason = forms.CharField(
        max_length=MAX_REASON_CHARS,
        required=False,
        help_text="For operators and the audit log.",
    )
    lasts = forms.ChoiceField(
        label="For",
        choices=[
            ("", "until an operator lifts the ban"),
            *_HOURS,
            ("until", "until the time below"),
        ],
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
            self.add_error("until", "Enter a time.")
        elif given is not None and not named:
            self.add_error("lasts", "Choose the last option, or delete the time.")
        elif given is not None and given <= timezone.now():
            self.add_error("until", "This time has passed.")
        elif given is not None and not storable.is_within_reach(given):
            self.add_error("until", f"The time must be before the end of {storable.LAST_YEAR}.")
        return cleaned

    @property
    def ends(self) -> datetime | None:
        """End of the ban; None if only an operator ends it."""
        lasts = self.cleaned_data["lasts"]
        if lasts == "until":
            named: datetime = self.cleaned_data["until"]
            return named
        return timezone.now() + timedelta(hours=int(lasts)) if lasts else None


def _unknown_field() -> forms.BooleanField:
    return forms.BooleanField(
        label="Accept unknown",
        required=False,
        help_text="Accept a twin that this relay does not know. Its id may be misspelt.",
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
        help_text=(
            "Such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/64. An IPv6 host usually has a "
            "whole /64."
        ),
    )
    force = forms.BooleanField(
        label="Even my own address",
        required=False,
        help_text=(
            "Ban the network even if it contains your own address or addresses of the "
            "relay's machine."
        ),
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
    """Lift the ban of a twin."""
    limit = _decided(twin)

    def perform(actor: Actor) -> str:
        services.lift_ban(twin, actor=actor)
        return f"Twin {twin} is not banned any more"

    why = f" It was banned for: {limit.ban_reason}." if limit.ban_reason else ""
    question = Question(
        f"Lift the ban of twin {twin}", "Lift", f"The twin can sign in again within a second.{why}"
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
        "Within a second the relay closes the sessions from there (code 4007), and "
        "answers every request from there to its public listener with 403. The console "
        "stays reachable.",
        danger=True,
    )
    return act(request, question, perform, reverse("console:limits"), form)


@page("ban.lift")
def lift_address(request: HttpRequest) -> HttpResponseBase:
    """Lift the ban of an address or network."""
    named = given_text(request, "network")
    ban = addresses.find(named)
    if ban is None:
        raise NotFound(f"{named} is not banned" if named else "enter a banned address")

    def perform(actor: Actor) -> str:
        return f"{addresses.lift(ban.network, actor=actor)} is not banned any more"

    why = f" It was banned for: {ban.reason}." if ban.reason else ""
    question = Question(
        f"Lift the ban of {ban.network}",
        "Lift",
        f"The relay accepts connections from there again within a second.{why}",
    )
    return act(request, question, perform, reverse("console:limits"))


def _bound(label: str, help_text: str) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        min_value=1,
        max_value=defaults.MAX_VALUE,
        required=False,
        help_text=f"{help_text} Empty: the limit of all twins.",
    )


class LimitForm(forms.Form):
    """Limits of one twin, and a note."""

    twin = forms.IntegerField(min_value=1, max_value=MAX_TWIN)
    count = forms.IntegerField(
        label="Messages per minute", min_value=0, max_value=defaults.MAX_VALUE, required=False
    )
    size = forms.IntegerField(
        label="Bytes per minute",
        min_value=0,
        max_value=defaults.MAX_VALUE,
        required=False,
        help_text=f"Also the largest single message. {_ZEROES} Both empty: the limit of all twins.",
    )
    waiting_messages = _bound(
        "Messages that may wait",
        "For all sessions of the twin. The same limit applies to waiting messages from the twin.",
    )
    waiting_bytes = _bound("Bytes that may wait", "Memory of these messages in Redis.")
    waiting_queues = _bound(
        "Queues with waiting messages",
        "Of all sessions of the twin. The same limit applies to queues of messages from the twin.",
    )
    note = forms.CharField(
        max_length=MAX_NOTE_CHARS,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="For operators.",
    )
    unknown = _unknown_field()


@page("limit.set")
def limit(request: HttpRequest) -> HttpResponseBase:
    """Set limits for one twin, or remove them."""
    twin = _named(request)
    present = listing.of([twin]).get(twin) if twin else None
    initial = model_to_dict(present) if present else {}
    form = LimitForm(posted(request), initial={**initial, "twin": twin})

    def perform(actor: Actor) -> str:
        given = dict(form.cleaned_data)
        _check_known(given)
        del given["unknown"]
        with audit.exclusive():  # keeps out a concurrent ban
            row = listing.of([given["twin"]]).get(given["twin"]) or TwinLimit()
            for name, value in given.items():
                setattr(row, name, value)
            services.save(row, actor=actor)
        if given["count"] is None:
            return f"The limit of all twins applies to twin {given['twin']}"
        return f"Twin {given['twin']} has a limit of its own"

    question = Question(
        f"Limit twin {twin}" if twin else "Limit a twin",
        "Set",
        "The limit replaces the limit of all twins within a second.",
    )
    return act(request, question, perform, reverse("console:limits"), form)


@page("limit.remove")
def remove(request: HttpRequest, twin: int) -> HttpResponseBase:
    """Remove all decisions about a twin."""
    present = _decided(twin)

    def perform(actor: Actor) -> str:
        services.remove([twin], actor=actor)
        return f"All decisions about twin {twin} are removed"

    loses = []
    if present.banned:
        loses.append(f"its ban{f' for {present.ban_reason}' if present.ban_reason else ''}")
    if present.count is not None:
        loses.append(f"its limit: {limit_of(present)} a minute")
    if present.note:
        loses.append(f"the note: {present.note}")
    question = Question(
        f"Remove all decisions about twin {twin}",
        "Forget",
        "The limit of all twins then applies to the twin, and the twin can sign in.",
        loses=tuple(loses),
        danger=True,
    )
    return act(request, question, perform, reverse("console:limits"))


class DefaultForm(forms.Form):
    """The limit of all twins."""

    count = forms.IntegerField(
        label="Messages per minute", min_value=0, max_value=defaults.MAX_VALUE
    )
    size = forms.IntegerField(
        label="Bytes per minute",
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
        "The limit applies within a second to every twin that has no limit of its own, "
        "until an operator resets it to the settings.",
    )
    return act(request, question, perform, reverse("console:limits"), form)


@page("limit.default")
def clear_default(request: HttpRequest) -> HttpResponseBase:
    """Reset the limit of all twins to that of the settings."""
    present = defaults.get()

    def perform(actor: Actor) -> str:
        defaults.clear(actor=actor)
        return "The limit of all twins is reset to the settings"

    question = Question(
        "Reset the limit of all twins to the settings",
        "Reset",
        "The limit of the settings `limits.count` and `limits.size` applies within a second.",
        loses=(f"the limit that is set now: {present.count:,} and {present.size:,} bytes",),
    )
    return act(request, question, perform, reverse("console:limits"))


def _check_known(given: dict[str, Any]) -> None:
    """Check that this relay knows the twin, unless the form accepts unknown ones.

    Raises:
        Invalid: the twin is unknown; its id may be misspelt.
    """
    if given["unknown"]:
        return
    try:
        twins.require_known(given["twin"], "tick the box")
    except NotFound as error:
        raise Invalid(fields={"twin": error.detail}) from None


def _named(request: HttpRequest) -> int | None:
    """Return the twin that the address names, if any."""
    text = request.GET.get("twin", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None


def _decided(twin: int) -> TwinLimit:
    found = listing.of([twin]).get(twin) if twin <= MAX_TWIN else None
    if found is None:
        raise NotFound(f"nothing is decided about twin {twin}")
    return found
