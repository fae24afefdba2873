"""Pages of the receivers of alarms, and of the notices sent to them."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.actor import Actor
from relay.access.errors import Conflict
from relay.alarms import bounds, receivers
from relay.alarms.models import Delivery, Outcome, Receiver
from relay.alarms.rules import BY_KEY, Severity
from relay.dashboard.acts import Question, act
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Table, respond
from relay.dashboard.views.alarms import SEVERITIES, alarm_tabs
from relay.ops.paging import Page

RECEIVER_COLUMNS: Final = (
    Column("name", "Receiver", order="name"),
    Column("state", "State", Cell.STATE),
    Column("kind", "By"),
    Column("target", "Where", Cell.CODE, hint="secret parts are hidden"),
    Column("min_severity", "Hears", Cell.STATE, hint="lowest severity that is sent"),
    Column("waiting", "Waiting", Kind.NUMBER, hint="notices not delivered yet"),
    Column("last_success", "Last success", Cell.MOMENT),
    Column("last_error", "Last error"),
)
NOTICE_COLUMNS: Final = (
    Column("created", "When", Cell.MOMENT),
    Column("receiver", "Receiver"),
    Column("what", "Told"),
    Column("title", "Alarm"),
    Column("subject", "About", Cell.CODE),
    Column("outcome", "Outcome", Cell.STATE),
    Column("tries", "Tries", Kind.NUMBER),
    Column("ended", "Ended", Cell.MOMENT),
    Column("error", "Error"),
    Column("id", "Number", order="id", optional=True),
)
OUTCOMES: Final = {
    Outcome.WAITING: State("waiting", Tone.WARNING),
    Outcome.SENT: State("sent", Tone.GOOD),
    Outcome.GIVEN_UP: State("given up", Tone.BAD),
}


@page("receiver.view")
def receivers_page(request: HttpRequest) -> HttpResponseBase:
    """List the receivers, and whether they accept notices."""
    testable, changeable = may(request, "receiver.test"), may(request, "receiver.change")
    removable = may(request, "receiver.remove")

    def fetch(ask: Ask) -> Page[Row]:
        found = ask.page(Receiver.objects.all(), {"name": "name"})
        waiting = receivers.waiting_by_receiver(found.items)
        rows = [
            _receiver(each, waiting[each.pk], testable, changeable, removable)
            for each in found.items
        ]
        return Page(rows, found.next)

    table = Table(
        request, "receivers", RECEIVER_COLUMNS, fetch, order="name", live=True,
        empty="No receivers: alarms show only in the console.",
    )  # fmt: skip
    add = Action("Add a receiver", reverse("console:alarms_receiver_add"))
    context = {
        "tabs": alarm_tabs(request),
        "actions": [add] if may(request, "receiver.add") else [],
    }
    return respond(request, table, "relay_dashboard/table_page.html", "Alarms", context)


@page("receiver.test")
def test_receiver(request: HttpRequest, receiver_id: int) -> HttpResponseBase:
    """Send a test to a receiver, and show the result."""
    found = receivers.get_receiver(receiver_id)

    def perform(actor: Actor) -> str:
        answer = receivers.send_test(receiver_id, actor=actor)
        if not answer.ok:
            raise Conflict(f"{found} did not accept the test: {answer.text}")
        return f"{found} accepted the test: {answer.text}"

    question = Question(
        f"Send a test to {found}",
        "Send",
        f"The relay sends a test notice to {receivers.shown_target(found)}. The result may take "
        f"{bounds.DELIVERY_S:g} seconds.",
    )
    return act(request, question, perform, reverse("console:alarms_receivers"))


@page("notice.view")
def notices(request: HttpRequest) -> HttpResponseBase:
    """List the notices that were sent to receivers or wait for them."""

    def fetch(ask: Ask) -> Page[Row]:
        rows = Delivery.objects.select_related("receiver")
        if ask.filters["receiver"]:
            rows = rows.filter(receiver__name=ask.filters["receiver"])
        if ask.filters["outcome"]:
            rows = rows.filter(outcome=ask.filters["outcome"])
        found = ask.page(rows, {"id": "pk"})
        return Page([_notice(each) for each in found.items], found.next)

    names = Receiver.objects.values_list("name", flat=True)
    table = Table(
        request, "notices", NOTICE_COLUMNS, fetch, order="-id", live=True,
        filters=(
            Filter("receiver", "Receiver", [(name, name) for name in names]),
            Filter("outcome", "Outcome", [(each.value, each.value) for each in Outcome]),
        ),
        empty=f"No notices were sent in the last {bounds.KEEP_DAYS} days.",
    )  # fmt: skip
    context = {"tabs": alarm_tabs(request)}
    return respond(request, table, "relay_dashboard/table_page.html", "Alarms", context)


def _receiver(
    found: Receiver, waiting: int, testable: bool, changeable: bool, removable: bool
) -> Row:
    state = State("told", Tone.GOOD)
    if not found.enabled:
        state = State("off", Tone.IDLE, "the receiver gets no notices")
    elif found.failures:
        state = State("failing", Tone.BAD, found.last_error)
    values = {
        "name": found.name,
        "state": state,
        "kind": found.get_kind_display().lower(),
        "target": receivers.shown_target(found),
        "min_severity": SEVERITIES[Severity(found.min_severity)],
        "waiting": waiting,
        "last_success": found.last_success,
        "last_error": found.last_error,
    }
    actions = []
    if testable:
        actions.append(Action("Test", reverse("console:alarms_receiver_test", args=[found.pk])))
    if changeable:
        url = reverse("console:alarms_receiver_change", args=[found.pk])
        actions.append(Action("Change", url))
    if removable:
        url = reverse("console:alarms_receiver_remove", args=[found.pk])
        actions.append(Action("Remove", url, danger=True))
    return Row(values, actions=actions)


def _notice(found: Delivery) -> Row:
    alarm = found.body["alarm"]
    rule = BY_KEY.get(alarm["rule"])
    values = {
        "created": found.created,
        "receiver": found.receiver.name,
        "what": found.body["type"],
        "title": rule.title if rule else alarm["rule"],
        "subject": alarm["subject"],
        "outcome": OUTCOMES[Outcome(found.outcome)],
        "tries": found.tries,
        "ended": found.ended,
        "error": found.error,
        "id": found.pk,
    }
    return Row(values)
