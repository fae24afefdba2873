"""The outbox of the alarms: notices that wait for receivers, delivered in order until accepted.

`enqueue` writes notices into the database, in the transaction in which the alarm changes.
`start_due` hands each receiver with waiting notices to a thread of this process, so that a slow
receiver does not delay others. Only the oldest notice of a receiver is tried; while it fails, the
others wait behind it. A notice may arrive twice, if its answer was lost or a process ended;
receivers recognise it by its id.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.db.models import F, Q

from proto.limits.backoff import Backoff
from relay.access.actor import Actor, Face
from relay.alarms import bounds, sending
from relay.alarms.models import Delivery, Outcome, Receiver, ReceiverKind
from relay.alarms.notice import Document
from relay.alarms.rules import Severity
from relay.alarms.sending import Answer
from relay.ops import background

logger = logging.getLogger(__name__)

BACKOFF: Final = Backoff(first_s=5.0, longest_s=300.0, jitter=0.2)
THREADS: Final = 8

_threads: Final[list[ThreadPoolExecutor]] = []


def enqueue(told: Document, receivers: Sequence[Receiver] | None = None) -> int:
    """Enqueue a notice for all receivers of its severity, in the caller's transaction.

    Args:
        told: notice, as `notice.document` returns it.
        receivers: enabled receivers, if the caller has read them already.

    Returns:
        Number of receivers for which it is enqueued.
    """
    if receivers is None:
        receivers = list(Receiver.objects.filter(enabled=True))
    severity = Severity(told["alarm"]["severity"])
    count = 0
    for receiver in receivers:
        if severity.rank < Severity(receiver.min_severity).rank:
            continue
        Receiver.objects.filter(pk=receiver.pk).update(sequence=F("sequence") + 1)
        sequence = Receiver.objects.values_list("sequence", flat=True).get(pk=receiver.pk)
        Delivery.objects.create(
            receiver=receiver,
            event_id=told["id"],
            body={**told, "sequence": sequence},
            created=_time(time.time()),
        )
        _bound(receiver)
        count += 1
    return count


def begin(actor: Actor) -> None:
    """Start to deliver waiting notices as soon as the actor's change is committed."""

    def start() -> None:
        if actor.face is Face.CLI:
            # A command with threads would wait for them, and so for slow receivers, at its end.
            background.start("alarms.deliver")
        else:
            start_due()

    if Delivery.objects.filter(outcome=Outcome.WAITING).exists():
        transaction.on_commit(start)


def start_due() -> list[Future[None]]:
    """Start to deliver notices that are due, in threads; skip receivers that are being served."""
    started = []
    for receiver in due(time.time()):
        if not _threads:
            _threads.append(ThreadPoolExecutor(THREADS, thread_name_prefix="alarms"))
        started.append(_threads[0].submit(_deliver, receiver.pk))
    return started


def due(now: float) -> list[Receiver]:
    """Return the receivers with notices that may be tried now, each reserved for the caller."""
    idle = Q(busy_until__lte=now) | Q(busy_until__gt=now + 2 * bounds.DELIVERING_S)
    may = Q(retry_at__lte=now) | Q(retry_at__gt=now + 2 * BACKOFF.longest_s)  # a clock set back
    waiting = Delivery.objects.filter(outcome=Outcome.WAITING).values("receiver")
    return [
        receiver
        for receiver in Receiver.objects.filter(idle & may, enabled=True, pk__in=waiting)
        if Receiver.objects.filter(pk=receiver.pk, busy_until=receiver.busy_until).update(
            busy_until=now + bounds.DELIVERING_S
        )
    ]


def drain(receiver_id: int) -> int:
    """Deliver notices to one reserved receiver until no more wait or a try fails.

    Returns:
        Number of notices that the receiver accepted.
    """
    taken = 0
    try:
        for _ in range(bounds.DELIVERIES_AT_ONCE):
            who = Receiver.objects.filter(pk=receiver_id, enabled=True)
            who.update(busy_until=time.time() + bounds.DELIVERING_S)
            receiver = who.first()
            oldest = _oldest(receiver_id)
            if receiver is None or oldest is None:
                break
            if not _try(receiver, oldest):
                break
            taken += 1
    finally:
        Receiver.objects.filter(pk=receiver_id).update(busy_until=0.0)
    return taken


def send(receiver: Receiver, told: Document) -> Answer:
    """Send a notice to a receiver once, without any change to the database."""
    if receiver.kind == ReceiverKind.EMAIL:
        return sending.to_address(receiver.target, told)
    return sending.to_webhook(receiver.target, receiver.secret, told)


def give_up(deliveries: Sequence[Delivery], why: str) -> None:
    """Give up deliveries, with a reason: they are not tried again."""
    ids = [delivery.pk for delivery in deliveries]
    Delivery.objects.filter(pk__in=ids).update(
        outcome=Outcome.GIVEN_UP, error=why, ended=_time(time.time())
    )
    if ids:
        logger.error("%d notices of alarms given up: %s", len(ids), why)


def _deliver(receiver_id: int) -> None:
    try:
        drain(receiver_id)
    except DatabaseError as error:
        logger.warning("alarms are not delivered for now: %s", error)
    except Exception:
        logger.exception("delivering alarms")
    finally:
        connections.close_all()  # the connections of this thread


def _oldest(receiver_id: int) -> Delivery | None:
    """Return the oldest waiting notice, after giving up those that have waited too long."""
    waiting = Delivery.objects.filter(receiver=receiver_id, outcome=Outcome.WAITING)
    since = _time(time.time() - bounds.GIVE_UP_S)
    give_up(list(waiting.filter(created__lt=since)), "not taken within a day")
    return waiting.order_by("pk").first()


def _try(receiver: Receiver, delivery: Delivery) -> bool:
    answer = send(receiver, delivery.body)
    now = time.time()
    mine = Delivery.objects.filter(pk=delivery.pk, outcome=Outcome.WAITING)
    who = Receiver.objects.filter(pk=receiver.pk)
    if answer.ok:
        mine.update(outcome=Outcome.SENT, tries=F("tries") + 1, error="", ended=_time(now))
        who.update(failures=0, retry_at=0.0, last_error="", last_success=_time(now))
        return True
    failures = receiver.failures + 1
    retry_at = now + BACKOFF.delay_s(failures, random.random)
    mine.update(tries=F("tries") + 1, error=answer.text)
    who.update(failures=failures, retry_at=retry_at, last_error=answer.text)
    logger.warning("alarm not delivered to %s: %s", receiver.name, answer.text)
    return False


def _bound(receiver: Receiver) -> None:
    waiting = Delivery.objects.filter(receiver=receiver, outcome=Outcome.WAITING)
    over = waiting.count() - bounds.MAX_WAITING
    if over > 0:
        give_up(list(waiting.order_by("pk")[:over]), "too many wait")


def _time(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
