"""Who is told of alarms: adding, changing, removing and testing receivers."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils import timezone
from django.utils.crypto import salted_hmac

from relay.access import matrix
from relay.access.actor import Actor
from relay.access.errors import Conflict, Invalid, NotFound
from relay.alarms import bounds, delivery, notice, rounds, sending
from relay.alarms.models import Delivery, Outcome, Receiver, ReceiverKind
from relay.alarms.rules import BY_KEY, Severity
from relay.alarms.sending import Answer
from relay.audit import services as audit

LEAST_SECRET_CHARS: Final = 16
TEST_RULE: Final = "disk"
"""What a test pretends to be about."""

_NAME: Final = re.compile(r"[\w.-][\w. -]*")


class Added(NamedTuple):
    """A new receiver; the secret of a webhook is shown this once."""

    receiver: Receiver
    secret: str


def get_receiver(receiver_id: int) -> Receiver:
    """One receiver.

    Raises:
        NotFound: there is none.
    """
    receiver = Receiver.objects.filter(pk=receiver_id).first()
    if receiver is None:
        raise NotFound(f"there is no receiver {receiver_id}")
    return receiver


def find_receiver(name: str) -> Receiver:
    """A receiver by its name, or the number it has.

    Raises:
        NotFound: there is none.
    """
    receiver = Receiver.objects.filter(name=name).first()
    if receiver is None and name.isdecimal() and len(name) < 18:
        receiver = Receiver.objects.filter(pk=int(name)).first()
    if receiver is None:
        raise NotFound(f"there is no receiver {name[:80]!r}")
    return receiver


def add_receiver(
    name: str,
    kind: str,
    target: str,
    *,
    actor: Actor,
    secret: str = "",
    min_severity: str = Severity.WARNING,
    enabled: bool = True,
) -> Added:
    """Have somebody told of alarms, at once of those that fire.

    Args:
        name: for operators.
        kind: `webhook` or `email`.
        target: its URL or address.
        actor: who wants it.
        secret: of a webhook; one is made where none is given.
        min_severity: `info`, `warning` or `critical`.
        enabled: from now on.

    Raises:
        Invalid, Conflict: a field is wrong; there are too many.
    """
    if kind == ReceiverKind.WEBHOOK and not secret:
        secret = new_secret()
    receiver = Receiver(
        name=name,
        kind=kind,
        target=target,
        secret=secret,
        min_severity=min_severity,
        enabled=enabled,
    )
    check(receiver)
    with audit.change(actor, "receiver.add", target=name) as change:
        rounds.held()
        if Receiver.objects.count() >= bounds.MAX_RECEIVERS:
            raise Conflict(f"there are {bounds.MAX_RECEIVERS} receivers: remove some")
        receiver.save()
        change.after = _receiver(receiver)
        if enabled:
            rounds.tell_firing(receiver)
            delivery.begin(actor)
    return Added(receiver, secret if kind == ReceiverKind.WEBHOOK else "")


def new_secret() -> str:
    """A secret for the signatures of one receiver."""
    return secrets.token_urlsafe(32)


def change_receiver(receiver_id: int, *, actor: Actor, **fields: Any) -> Receiver:
    """Change some fields of a receiver; its kind stays.

    Args:
        receiver_id: whose.
        actor: who wants it.
        fields: `name`, `target`, `secret`, `min_severity`, `enabled`; those left out stay.

    Raises:
        NotFound, Invalid: a field is wrong.
    """
    with audit.change(actor, "receiver.change", target=receiver_id) as change:
        rounds.held()  # nobody is about to tell it something
        receiver = Receiver.objects.select_for_update().filter(pk=receiver_id).first()
        if receiver is None:
            raise NotFound(f"there is no receiver {receiver_id}")
        change.target, change.before = receiver.name, _receiver(receiver)
        heard = Severity(receiver.min_severity) if receiver.enabled else None
        target = receiver.target
        for name in ("name", "target", "secret", "min_severity", "enabled"):
            if name in fields:
                setattr(receiver, name, fields[name])
        check(receiver)
        receiver.retry_at = 0.0  # what was wrong may be right now
        receiver.save(
            update_fields=["name", "target", "secret", "min_severity", "enabled", "retry_at"]
        )
        change.after = {**_receiver(receiver), "secret changed": bool(fields.get("secret"))}
        if receiver.enabled:
            rounds.tell_firing(receiver, heard if receiver.target == target else None)
            delivery.begin(actor)
        else:
            waiting = Delivery.objects.filter(receiver=receiver, outcome=Outcome.WAITING)
            delivery.give_up(list(waiting), "the receiver was switched off")
    return receiver


def remove_receiver(receiver_id: int, *, actor: Actor) -> None:
    """Tell a receiver nothing any more, and forget what it was told.

    Raises:
        NotFound: there is none.
    """
    with audit.change(actor, "receiver.remove", target=receiver_id) as change:
        rounds.held()
        receiver = get_receiver(receiver_id)
        change.target, change.before = receiver.name, _receiver(receiver)
        receiver.delete()


def send_test(receiver_id: int, *, actor: Actor) -> Answer:
    """Send a receiver a notice that is marked as a test, at once and past what waits for it.

    Returns:
        What it answered.

    Raises:
        NotFound: there is none.
    """
    actor.require(matrix.permission_of("receiver.test"))
    receiver = get_receiver(receiver_id)
    told = notice.document(
        notice.TEST,
        BY_KEY[TEST_RULE],
        at=timezone.now().timestamp(),
        domains=settings.RMB.relay.domains,
        subject="a test",
        value=0.0,
        detail=f"sent by {actor.name}",
    )
    # Not inside of a change: nobody else could write while a receiver takes its time.
    answer = delivery.send(receiver, {**told, "sequence": 0})
    audit.record(
        actor, "receiver.test", target=receiver.name, after={"ok": answer.ok, "said": answer.text}
    )
    if answer.ok:
        # It takes notices: what waits behind a back-off need not wait for its end.
        Receiver.objects.filter(pk=receiver.pk).update(retry_at=0.0, failures=0)
    return answer


def shown_target(receiver: Receiver) -> str:
    """Where a receiver is, without the part of its URL that may be a secret."""
    if receiver.kind == ReceiverKind.EMAIL:
        return receiver.target
    parts = urlsplit(receiver.target)
    hidden = parts.path.strip("/") or parts.query
    return f"{parts.scheme}://{parts.netloc}/{'…' if hidden else ''}"


def revision_of(receiver: Receiver) -> str:
    """Names the settings as they are, those that are not shown as well; tells nothing of them."""
    settled = (receiver.name, receiver.kind, receiver.target, receiver.secret)
    document = json.dumps([*settled, receiver.min_severity, receiver.enabled])
    return salted_hmac("relay.alarms.receiver", document, algorithm="sha256").hexdigest()[:16]


def waiting_by_receiver(receivers: Sequence[Receiver]) -> dict[int, int]:
    """How many notices wait for each."""
    found: dict[int, int] = {each.pk: 0 for each in receivers}
    waiting = Delivery.objects.filter(outcome=Outcome.WAITING, receiver__in=found)
    for receiver_id in waiting.values_list("receiver", flat=True):
        found[receiver_id] += 1
    return found


def check(receiver: Receiver) -> None:
    """Refuse a receiver that makes no sense.

    Raises:
        Invalid: it names the fields.
    """
    wrong = {}
    if not _NAME.fullmatch(receiver.name):
        wrong["name"] = "must be letters, digits, spaces, '.', '-' and '_'"
    if receiver.kind == ReceiverKind.WEBHOOK:
        try:
            sending.webhook(receiver.target)
        except sending.TargetError as error:
            wrong["target"] = str(error)
        if len(receiver.secret) < LEAST_SECRET_CHARS or not receiver.secret.isprintable():
            wrong["secret"] = f"must have at least {LEAST_SECRET_CHARS} printable characters"
    elif receiver.kind == ReceiverKind.EMAIL:
        try:
            validate_email(receiver.target)
        except ValidationError as error:
            wrong["target"] = " ".join(error.messages)
        if receiver.secret:
            wrong["secret"] = "is for webhooks"
        if not settings.RMB.email.host:
            wrong["kind"] = "no e-mail can be sent: the setting email.host is empty"
    if wrong:
        raise Invalid(fields=wrong)
    try:
        receiver.full_clean()
    except ValidationError as error:
        raise Invalid.of_validation(error) from error


def _receiver(receiver: Receiver) -> dict[str, Any]:
    return {
        "name": receiver.name,
        "kind": receiver.kind,
        "target": shown_target(receiver),
        "min_severity": receiver.min_severity,
        "enabled": receiver.enabled,
    }
