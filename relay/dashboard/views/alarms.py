"""Pages of alarms: firing alarms with instructions, one alarm, and the history."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from relay.access.actor import Actor
from relay.alarms import bounds, figures, listing, services
from relay.alarms.machine import Limits
from relay.alarms.models import Alarm, AlarmEvent, Kind
from relay.alarms.models import State as AlarmState
from relay.alarms.rules import BY_KEY, RULES, Severity
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.pages import may, page, render
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Ask, Cell, Column, Filter, Row, Tab, Table, respond
from relay.dashboard.tabs import Entry, tabs
from relay.ops.paging import Page

MAX_SHOWN: Final = 100
"""Maximum number of alarms on the first page."""

TABS: Final = (
    Entry("Now", "alarms", "alarm.view"),
    Entry("History", "alarms_history", "alarm.history"),
    Entry("Silences", "alarms_silences", "silence.view"),
    Entry("Rules", "alarms_rules", "rule.view"),
    Entry("Receivers", "alarms_receivers", "receiver.view"),
    Entry("Notices", "alarms_notices", "notice.view"),
)
SEVERITIES: Final = {
    Severity.CRITICAL: State("critical", Tone.BAD, "act now, also at night"),
    Severity.WARNING: State("warning", Tone.WARNING, "act in working hours"),
    Severity.INFO: State("info", Tone.INFO, "no action needed"),
}
STATES: Final = {
    AlarmState.PENDING: State("beyond the threshold, not yet for the hold time", Tone.INFO),
    AlarmState.FIRING: State("firing", Tone.BAD),
    AlarmState.ACKNOWLEDGED: State("acknowledged", Tone.INFO),
    AlarmState.SILENCED: State("silenced", Tone.IDLE),
    AlarmState.RESOLVED: State("over", Tone.GOOD),
}
KINDS: Final = {
    Kind.FIRED: State("fired", Tone.BAD),
    Kind.RESOLVED: State("ended", Tone.GOOD),
    Kind.ACKNOWLEDGED: State("acknowledged", Tone.INFO),
    Kind.UNACKNOWLEDGED: State("unacknowledged", Tone.WARNING),
    Kind.SILENCED: State("silenced", Tone.IDLE),
    Kind.UNSILENCED: State("silence ended", Tone.INFO),
}
RULE_CHOICES: Final = tuple((rule.key, rule.title) for rule in RULES)
EVENT_COLUMNS: Final = (
    Column("at", "When", Cell.MOMENT),
    Column("kind", "What", Cell.STATE),
    Column("title", "Alarm"),
    Column("subject", "About", Cell.CODE),
    Column("severity", "Severity", Cell.STATE),
    Column("value", "Reading", hint="value at the time of the event"),
    Column("by", "By"),
    Column("detail", "Detail"),
    Column("rule", "Rule", Cell.CODE, optional=True),
    Column("id", "Number", order="id", optional=True, hint="number of the event"),
)


class NoteForm(forms.Form):
    """A note for other operators."""

    note = forms.CharField(
        label="Note",
        required=False,
        max_length=bounds.MAX_NOTE_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Such as who works on the alarm, and findings. Receivers get the note too.",
    )


def alarm_tabs(request: HttpRequest, current: str = "") -> list[Tab]:
    """Return the tabs of all pages of alarms."""
    return tabs(request, TABS, current)


@page("alarm.view")
def alarms(request: HttpRequest) -> HttpResponseBase:
    """Show the firing alarms with instructions; the page refreshes itself."""
    found = listing.firing()
    context: dict[str, Any] = {
        "tabs": alarm_tabs(request),
        "cards": [_card(request, alarm, limits) for alarm, limits in found[:MAX_SHOWN]],
        "more": max(0, len(found) - MAX_SHOWN),
        "pending": listing.pending(),
        "complaint": figures.complaint(),
    }
    if request.headers.get("HX-Target") == "alarms-now":
        return TemplateResponse(request, "relay_dashboard/alarms_now.html", context)
    return render(request, "relay_dashboard/alarms.html", "Alarms", context)


@page("alarm.view")
def alarm(request: HttpRequest, alarm_id: int) -> HttpResponseBase:
    """Show one alarm, firing or not, and its events."""
    found = services.get_alarm(alarm_id)
    rows = AlarmEvent.objects.filter(rule=found.rule, subject=found.subject)
    columns = [each for each in EVENT_COLUMNS if each.key not in ("title", "subject", "rule")]

    def fetch(ask: Ask) -> Page[Row]:
        events = ask.page(rows, {"id": "pk"})
        return Page([_event(each) for each in events.items], events.next)

    table = Table(
        request, "events", columns, fetch, order="-id", title="Event",
        empty="No events yet.",
    )  # fmt: skip
    context = {
        "tabs": alarm_tabs(request, "alarms"),
        "card": _card(request, found, listing.limits_in_force(found.rule)),
    }
    return respond(request, table, "relay_dashboard/alarm.html", str(found), context)


@page("alarm.acknowledge")
def acknowledge(request: HttpRequest, alarm_id: int) -> HttpResponseBase:
    """Acknowledge an alarm: an operator works on it."""
    found = services.get_alarm(alarm_id)
    form = NoteForm(posted(request))

    def perform(actor: Actor) -> str:
        services.acknowledge(alarm_id, actor=actor, note=form.cleaned_data["note"])
        return f"{found}: acknowledged"

    question = Question(
        f"Acknowledge: {found}",
        "Acknowledge",
        (
            "Receivers are notified that you work on the alarm. The acknowledgement lasts "
            "until the alarm ends."
        ),
    )
    return act(request, question, perform, reverse("console:alarms"), form)


@page("alarm.unacknowledge")
def unacknowledge(request: HttpRequest, alarm_id: int) -> HttpResponseBase:
    """Withdraw the acknowledgement of an alarm."""
    found = services.get_alarm(alarm_id)

    def perform(actor: Actor) -> str:
        services.unacknowledge(alarm_id, actor=actor)
        return f"{found}: not acknowledged any more"

    question = Question(
        f"Withdraw the acknowledgement: {found}",
        "Withdraw",
        "Receivers are notified that the alarm is not acknowledged any more.",
        loses=(f"the note: {found.note}",) if found.note else (),
    )
    return act(request, question, perform, reverse("console:alarms"))


@page("alarm.history")
def history(request: HttpRequest) -> HttpResponseBase:
    """List the events of all alarms, the latest first."""

    def fetch(ask: Ask) -> Page[Row]:
        rows = AlarmEvent.objects.all()
        for name in ("kind", "rule", "subject"):
            if ask.filters[name]:
                rows = rows.filter(**{name: ask.filters[name]})
        found = ask.page(rows, {"id": "pk"})
        return Page([_event(each) for each in found.items], found.next)

    table = Table(
        request, "alarm-history", EVENT_COLUMNS, fetch, order="-id",
        filters=(
            Filter("kind", "What", [(kind.value, state.text) for kind, state in KINDS.items()]),
            Filter("rule", "Alarm", RULE_CHOICES),
            Filter("subject", "About", hint="complete subject"),
        ),
        empty=f"No alarm has fired yet. Events of alarms are kept for {bounds.KEEP_DAYS} days.",
        live=True,
    )  # fmt: skip
    context = {"tabs": alarm_tabs(request)}
    return respond(request, table, "relay_dashboard/table_page.html", "Alarms", context)


def _card(request: HttpRequest, found: Alarm, limits: Limits | None) -> dict[str, Any]:
    """Return the context of an alarm's card."""
    rule = found.definition
    about = urlencode({"rule": found.rule, "subject": found.subject or "*"})
    silence = f"{reverse('console:alarms_silence_add')}?{about}"
    return {
        "alarm": found,
        "rule": rule,
        "severity": SEVERITIES[Severity(found.severity)],
        "state": STATES[AlarmState(found.state)],
        "reading": listing.reading(rule, found.value),
        "fires": listing.fires(rule, limits) if rule and limits else "",
        "ends": listing.ends(rule, limits) if rule and limits else "",
        "acknowledge": found.active
        and found.acknowledged_at is None
        and may(request, "alarm.acknowledge"),
        "unacknowledge": found.acknowledged_at is not None and may(request, "alarm.unacknowledge"),
        "silence": silence if found.active and may(request, "silence.add") else "",
    }


def _event(found: AlarmEvent) -> Row:
    rule = BY_KEY.get(found.rule)
    values = {
        "at": found.at,
        "kind": KINDS[Kind(found.kind)],
        "title": rule.title if rule else found.rule,
        "subject": found.subject,
        "severity": SEVERITIES[Severity(found.severity)],
        "value": "" if found.value is None else listing.reading(rule, found.value),
        "by": found.by,
        "detail": found.detail,
        "rule": found.rule,
        "id": found.pk,
    }
    return Row(values, {"title": reverse("console:alarms_rule", args=[found.rule])} if rule else {})
