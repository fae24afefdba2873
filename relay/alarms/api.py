"""Alarms over REST: firing alarms, rules, silences, receivers, history, and a stream of events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from channels.db import database_sync_to_async
from ninja import Query, Router, Status

from relay.alarms import documents, receivers, services
from relay.alarms.models import (
    Alarm,
    AlarmEvent,
    Delivery,
    Receiver,
    Silence,
)
from relay.alarms.schemas import (
    AlarmEventOut,
    AlarmOut,
    AlarmQuery,
    EventQuery,
    NoteBody,
    NoticeOut,
    NoticeQuery,
    ReceiverAdded,
    ReceiverBody,
    ReceiverOut,
    ReceiverPatch,
    ReceiverQuery,
    RuleBody,
    RuleKey,
    RuleOut,
    SilenceBody,
    SilenceOut,
    SilenceQuery,
    TestOut,
)
from relay.audit import services as audit
from relay.rest import etag, events
from relay.rest.caller import Request
from relay.rest.operation import delete, get, patch, post, put
from relay.rest.paging import page
from relay.rest.schema import Page, RowId

router = Router(tags=["alarms"])

STREAM_POLL_S: Final = 1.0
STREAM_ITEMS: Final = 100
EVENT_ID: Final = re.compile("[0-9]{1,18}")


# --- alarms -----------------------------------------------------------------------------------


@get(router, path="/alarms", action="alarm.view", answer=Page[AlarmOut])
def list_alarms(request: Request, query: Query[AlarmQuery]) -> Any:
    """List alarms, including resolved ones.

    The alarm that changed last comes first, unless `order` says otherwise.
    """
    rows = Alarm.objects.all()
    for name in ("state", "severity", "rule", "subject"):
        value = getattr(query, name)
        if value is not None:
            rows = rows.filter(**{name: value})
    orders = {"id": "pk", "since": "since"}
    return page(query, rows, orders, show=lambda found: map(documents.alarm, found))


@get(router, path="/alarms/history", action="alarm.history", answer=Page[AlarmEventOut])
def list_alarm_events(request: Request, query: Query[EventQuery]) -> Any:
    """List the events of alarms."""
    rows = AlarmEvent.objects.all()
    for name in ("kind", "rule", "subject"):
        value = getattr(query, name)
        if value is not None:
            rows = rows.filter(**{name: value})
    return page(query, rows, {"id": "pk"}, show=lambda found: map(documents.event, found))


@get(router, path="/alarms/events", action="alarm.history", answer=AlarmEventOut, events=True)
async def stream_alarm_events(request: Request) -> Any:
    """Stream the events of alarms as they happen.

    The name of an event is its kind. Its id is the id of the same event in `/alarms/history`.
    """
    return await events.stream(request, "alarm.history", _feed, ids=EVENT_ID)


@get(router, path="/alarms/rules", action="rule.view", answer=list[RuleOut])
def list_alarm_rules(request: Request) -> Any:
    """List all rules with the values in force."""
    return [documents.rule(each) for each in services.list_rules()]


@get(router, path="/alarms/rules/{rule}", action="rule.view", answer=RuleOut, tagged=True)
def get_alarm_rule(request: Request, rule: RuleKey) -> Any:
    """Get a rule."""
    return documents.rule(services.get_rule(rule))


@put(router, path="/alarms/rules/{rule}", action="rule.set", answer=RuleOut, tagged=True)
def put_alarm_rule(request: Request, rule: RuleKey, body: RuleBody) -> Any:
    """Change a rule.

    The change applies at once. An empty object resets the rule to its defaults.
    """
    with audit.exclusive():
        before = RuleOut.model_validate(documents.rule(services.get_rule(rule)))
        etag.check_match(request, before)
        return documents.rule(services.set_rule(rule, actor=request.actor, **body.model_dump()))


@get(router, path="/alarms/silences", action="silence.view", answer=Page[SilenceOut])
def list_silences(request: Request, query: Query[SilenceQuery]) -> Any:
    """List silences, including those that ended within the last hour."""
    orders = {"id": "pk", "until": "until"}
    rows = Silence.objects.all()
    return page(query, rows, orders, show=lambda found: map(documents.silence, found))


@post(router, path="/alarms/silences", action="silence.add", answer=SilenceOut, status=201)
def add_silence(request: Request, body: SilenceBody) -> Any:
    """Silence the alarms that match: receivers get no notices about them."""
    made = services.silence(
        body.rule, body.subject, until=body.until, note=body.note, actor=request.actor
    )
    return Status(201, documents.silence(made))


@delete(router, path="/alarms/silences/{silence}", action="silence.end", answer=None, status=204)
def end_silence(request: Request, silence: RowId) -> Any:
    """End a silence: receivers get notices about firing alarms again."""
    services.end_silence(silence, actor=request.actor)


@get(router, path="/alarms/notices", action="notice.view", answer=Page[NoticeOut])
def list_notices(request: Request, query: Query[NoticeQuery]) -> Any:
    """List the notices that receivers got and those that wait for them."""
    rows = Delivery.objects.select_related("receiver")
    for name in ("receiver", "outcome"):
        value = getattr(query, name)
        if value is not None:
            rows = rows.filter(**{name: value})
    return page(query, rows, {"id": "pk"}, show=lambda found: map(documents.delivery, found))


# --- receivers --------------------------------------------------------------------------------


@get(router, path="/alarms/receivers", action="receiver.view", answer=Page[ReceiverOut])
def list_receivers(request: Request, query: Query[ReceiverQuery]) -> Any:
    """List the receivers of alarms."""
    orders = {"id": "pk", "name": "name"}
    return page(query, Receiver.objects.all(), orders, show=_receivers)


@post(
    router,
    path="/alarms/receivers",
    action="receiver.add",
    answer=ReceiverAdded,
    status=201,
    secret=True,
)
def add_receiver(request: Request, body: ReceiverBody) -> Any:
    """Add a receiver of alarms.

    Only this answer contains the secret that signs its webhooks.
    """
    added = receivers.add_receiver(**body.model_dump(), actor=request.actor)
    return Status(201, {**documents.receiver(added.receiver, 0), "secret": added.secret})


@get(
    router,
    path="/alarms/receivers/{receiver}",
    action="receiver.view",
    answer=ReceiverOut,
    tagged=True,
)
def get_receiver(request: Request, receiver: RowId) -> Any:
    """Get a receiver."""
    return _receivers([receivers.get_receiver(receiver)])[0]


@patch(
    router,
    path="/alarms/receivers/{receiver}",
    action="receiver.change",
    answer=ReceiverOut,
    tagged=True,
    conflicts=True,
)
def change_receiver(request: Request, receiver: RowId, body: ReceiverPatch) -> Any:
    """Change a receiver.

    A receiver that is switched off does not get the notices that wait for it either.
    """
    fields = {
        name: value
        for name, value in body.model_dump(exclude_unset=True).items()
        if value is not None
    }
    with audit.exclusive():
        before = ReceiverOut.model_validate(_receivers([receivers.get_receiver(receiver)])[0])
        etag.check_match(request, before)
        changed = receivers.change_receiver(receiver, actor=request.actor, **fields)
        return _receivers([changed])[0]


@delete(
    router,
    path="/alarms/receivers/{receiver}",
    action="receiver.remove",
    answer=None,
    status=204,
    tagged=True,
)
def remove_receiver(request: Request, receiver: RowId) -> Any:
    """Delete a receiver and the record of its notices."""
    with audit.exclusive():
        before = ReceiverOut.model_validate(_receivers([receivers.get_receiver(receiver)])[0])
        etag.check_match(request, before)
        receivers.remove_receiver(receiver, actor=request.actor)


@post(router, path="/alarms/receivers/{receiver}/test", action="receiver.test", answer=TestOut)
def test_receiver(request: Request, receiver: RowId) -> Any:
    """Send a test notice to a receiver.

    The notice is marked as a test and sent at once, before those that wait. The answer contains
    the result.
    """
    return receivers.send_test(receiver, actor=request.actor)._asdict()


# --- one alarm; after the fixed paths, which its path would match as ids ------------------------


@get(router, path="/alarms/{alarm}", action="alarm.view", answer=AlarmOut)
def get_alarm(request: Request, alarm: RowId) -> Any:
    """Get an alarm."""
    return documents.alarm(services.get_alarm(alarm))


@post(router, path="/alarms/{alarm}/acknowledge", action="alarm.acknowledge", answer=AlarmOut)
def acknowledge_alarm(request: Request, alarm: RowId, body: NoteBody) -> Any:
    """Acknowledge an alarm until it ends; its receivers are notified."""
    return documents.alarm(services.acknowledge(alarm, note=body.note, actor=request.actor))


@post(router, path="/alarms/{alarm}/unacknowledge", action="alarm.unacknowledge", answer=AlarmOut)
def unacknowledge_alarm(request: Request, alarm: RowId) -> Any:
    """Withdraw the acknowledgement of an alarm."""
    return documents.alarm(services.unacknowledge(alarm, actor=request.actor))


def _receivers(found: list[Receiver]) -> list[dict[str, Any]]:
    waiting = receivers.waiting_by_receiver(found)
    return [documents.receiver(each, waiting[each.pk]) for each in found]


async def _feed(last: str) -> AsyncIterator[events.Event]:
    """Yield the events of the history that follow one, polling each second because they are few."""
    after = int(last) if last else await database_sync_to_async(_newest)()
    while True:
        for each in await database_sync_to_async(_after)(after):
            after = each.pk
            yield events.Event(str(each.pk), each.kind, _plain(documents.event(each)))
        await asyncio.sleep(STREAM_POLL_S)


def _newest() -> int:
    return AlarmEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def _after(event: int) -> list[AlarmEvent]:
    return list(AlarmEvent.objects.filter(pk__gt=event).order_by("pk")[:STREAM_ITEMS])


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "at": document["at"].isoformat()}
