"""Pages of alarm rules with their thresholds, and of silences, which suppress notices."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone

from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.alarms import bounds, checks, listing, services
from relay.alarms.models import Silence
from relay.alarms.services import RuleState
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.pages import may, page, render
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Row, Table, respond
from relay.dashboard.views.alarms import SEVERITIES, alarm_tabs
from relay.ops.paging import Page

RULE_COLUMNS: Final = (
    Column("title", "Alarm"),
    Column("severity", "Severity", Cell.STATE),
    Column("fires", "Fires"),
    Column("ends", "Ends"),
    Column("state", "State", Cell.STATE),
    Column("subject", "About", hint="one alarm for each subject"),
    Column("key", "Rule", Cell.CODE, optional=True),
)
SILENCE_COLUMNS: Final = (
    Column("state", "State", Cell.STATE),
    Column("rule", "Rule", Cell.CODE, hint="* and ? are wildcards"),
    Column("subject", "About", Cell.CODE),
    Column("until", "Until", Cell.MOMENT, order="until"),
    Column("by", "By"),
    Column("note", "Reason"),
    Column("created", "Since", Cell.MOMENT),
)
LENGTHS: Final = (
    (1, "1 hour"), (4, "4 hours"), (12, "12 hours"), (24, "a day"), (72, "3 days"),
    (168, "a week"), ("", "until the time below"),
)  # fmt: skip
"""Durations of a silence, in hours."""


class SilenceForm(forms.Form):
    """Alarms to silence, the duration, and the reason."""

    rule = forms.CharField(
        label="Rule",
        initial="*",
        max_length=40,
        widget=forms.TextInput(attrs={"list": "alarm-rules"}),
        help_text="Name of the rule, such as partner_down; * and ? are wildcards.",
    )
    subject = forms.CharField(
        label="About",
        initial="*",
        max_length=bounds.MAX_SUBJECT_CHARS,
        help_text="Such as a relay or a worker; *: all subjects.",
    )
    hours = forms.TypedChoiceField(
        label="For",
        coerce=int,
        required=False,
        empty_value=None,
        initial=1,
        choices=LENGTHS,
    )
    until = forms.DateTimeField(
        label="Until (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="Instead of a duration.",
    )
    note = forms.CharField(
        label="Reason", max_length=bounds.MAX_NOTE_CHARS, help_text="For other operators."
    )

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        if "until" in found and not found["until"] and not found.get("hours"):
            self.add_error("until", "Choose a duration or an end.")
        return found

    @property
    def ends(self) -> datetime:
        """End of the silence: the given time, otherwise now plus the duration."""
        given: datetime | None = self.cleaned_data["until"]
        return given or timezone.now() + timedelta(hours=self.cleaned_data["hours"])


class RuleForm(forms.Form):
    """Numbers of one rule; an empty field means the rule's default."""

    threshold = forms.FloatField(label="Threshold", required=False)
    clear = forms.FloatField(label="Ends at", required=False)
    hold_s = forms.FloatField(label="Hold", required=False, min_value=0)
    enabled = forms.BooleanField(label="Watched", required=False)

    def __init__(self, data: Any, state: RuleState) -> None:
        kept = services.override_of(state.rule.key)._asdict()
        numbers = {name: f"{kept[name]:.15g}" for name in kept if isinstance(kept[name], float)}
        super().__init__(data, initial={**kept, **numbers})
        rule, unit = state.rule, state.rule.unit
        defaults = {"threshold": rule.threshold, "clear": rule.clear, "hold_s": rule.hold_s}
        for name, value in defaults.items():
            self.fields[name].widget.attrs |= {"placeholder": f"{value:g}", "step": "any"}
            said = "seconds" if name == "hold_s" else unit
            self.fields[name].help_text = f"Unit: {said}. Empty: the default, {value:g}."
        self.fields[
            "hold_s"
        ].help_text += " The alarm fires when the reading stays beyond the threshold for this time."
        self.fields["hold_s"].widget.attrs["max"] = f"{checks.MAX_HOLD_S:g}"
        if not unit:
            del self.fields["threshold"], self.fields["clear"]


# --- rules ------------------------------------------------------------------------------------


@page("rule.view")
def rules(request: HttpRequest) -> HttpResponseBase:
    """List all rules with the numbers in force."""
    changeable = may(request, "rule.set")
    table = Table(
        request,
        "rules",
        RULE_COLUMNS,
        lambda ask: Page([_rule_row(each, changeable) for each in services.list_rules()], ""),
    )
    context = {"tabs": alarm_tabs(request)}
    return respond(request, table, "relay_dashboard/table_page.html", "Alarms", context)


@page("rule.view")
def rule(request: HttpRequest, key: str) -> HttpResponseBase:
    """Show one rule: its meaning, and what to do when it fires."""
    state = services.get_rule(key)
    context = {
        "tabs": alarm_tabs(request, "alarms_rules"),
        "rule": state.rule,
        "severity": SEVERITIES[state.rule.severity],
        "state": state_of(state),
        "fires": listing.fires(state.rule, state.limits),
        "ends": listing.ends(state.rule, state.limits),
        "delivered": listing.fires(state.rule, state.rule.limits) if state.changed else "",
        "change": may(request, "rule.set"),
    }
    return render(request, "relay_dashboard/alarm_rule.html", state.rule.title, context)


@page("rule.set")
def change_rule(request: HttpRequest, key: str) -> HttpResponseBase:
    """Change the numbers of a rule, effective at once."""
    state = services.get_rule(key)
    form = RuleForm(posted(request), state)

    def perform(actor: Actor) -> str:
        given = {name: form.cleaned_data.get(name) for name in ("threshold", "clear", "hold_s")}
        services.set_rule(key, actor=actor, enabled=form.cleaned_data["enabled"], **given)
        return f"{state.rule.title}: changed"

    question = Question(
        f"Change the rule: {state.rule.title}",
        "Change",
        f"Now: fires {listing.fires(state.rule, state.limits)}; ends "
        f"{listing.ends(state.rule, state.limits)}. Changes take effect at once.",
    )
    return act(request, question, perform, reverse("console:alarms_rules"), form)


def state_of(state: RuleState) -> State:
    """Return whether a rule is enabled, and has its defaults."""
    if not state.enabled:
        return State("off", Tone.IDLE, "an owner disabled the rule")
    if state.error:
        return State("unknown", Tone.WARNING, state.error)
    return State("changed", Tone.INFO) if state.changed else State("default", Tone.GOOD)


# --- silences ---------------------------------------------------------------------------------


@page("silence.view")
def silences(request: HttpRequest) -> HttpResponseBase:
    """List the silences."""
    endable, now = may(request, "silence.end"), timezone.now()

    def fetch(ask: Ask) -> Page[Row]:
        found = ask.page(Silence.objects.all(), {"until": "until"})
        return Page([_silence_row(each, now, endable) for each in found.items], found.next)

    table = Table(
        request, "silences", SILENCE_COLUMNS, fetch, order="-until",
        empty="No silences: receivers get notices of all alarms.",
    )  # fmt: skip
    actions = [Action("Silence", reverse("console:alarms_silence_add"))]
    context = {
        "tabs": alarm_tabs(request),
        "actions": actions if may(request, "silence.add") else [],
    }
    return respond(request, table, "relay_dashboard/table_page.html", "Alarms", context)


@page("silence.add")
def add_silence(request: HttpRequest) -> HttpResponseBase:
    """Silence some alarms; the address may name them already."""
    given = {name: request.GET[name] for name in ("rule", "subject") if name in request.GET}
    form = SilenceForm(posted(request), initial=given)

    def perform(actor: Actor) -> str:
        values = form.cleaned_data
        made = services.silence(
            values["rule"], values["subject"], until=form.ends, note=values["note"], actor=actor
        )
        return f"{made.rule} about {made.subject}: silenced until {made.until:%Y-%m-%d %H:%M} UTC"

    question = Question(
        "Silence alarms",
        "Silence",
        "Receivers get no notices of matching alarms. The console still shows them.",
    )
    return act(request, question, perform, reverse("console:alarms_silences"), form)


@page("silence.end")
def end_silence(request: HttpRequest, silence_id: int) -> HttpResponseBase:
    """End a silence before its time."""
    found = Silence.objects.filter(pk=silence_id).first()
    if found is None:
        raise NotFound(f"there is no silence {silence_id}")

    def perform(actor: Actor) -> str:
        services.end_silence(silence_id, actor=actor)
        return f"{found}: the silence has ended"

    question = Question(
        f"End the silence of {found.rule} about {found.subject}",
        "End",
        "Receivers get notices of the alarms that fire now.",
    )
    return act(request, question, perform, reverse("console:alarms_silences"))


def _rule_row(state: RuleState, changeable: bool) -> Row:
    key = state.rule.key
    values = {
        "title": state.rule.title,
        "severity": SEVERITIES[state.rule.severity],
        "fires": listing.fires(state.rule, state.limits),
        "ends": listing.ends(state.rule, state.limits),
        "state": state_of(state),
        "subject": state.rule.subject or "the relay",
        "key": key,
    }
    change = Action("Change", reverse("console:alarms_rule_change", args=[key]))
    link = {"title": reverse("console:alarms_rule", args=[key])}
    return Row(values, link, [change] if changeable else [])


def _silence_row(found: Silence, now: datetime, endable: bool) -> Row:
    lasts = found.until > now
    values = {
        "state": State("silent", Tone.INFO) if lasts else State("over", Tone.IDLE),
        "rule": found.rule,
        "subject": found.subject,
        "until": found.until,
        "by": found.by,
        "note": found.note,
        "created": found.created,
    }
    end = Action("End", reverse("console:alarms_silence_end", args=[found.pk]))
    return Row(values, actions=[end] if endable and lasts else [])
