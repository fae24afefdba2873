"""Receivers of alarms: functions to add, change, remove and test them."""

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
"""Rule that a test notice names."""

_NAME: Final = re.compile(r"[\w.-][\w. -]*")


class Added(NamedTuple):
    """A new receiver, with the secret of a webhook, which is shown only this once."""

    receiver: Receiver
    secret: str


def get_receiver(receiver_id: int) -> Receiver:
    """Return a receiver.

    Raises:
        NotFound: it does not exist.
    """
    receiver = Receiver.objects.filter(pk=receiver_id).first()
    if receiver is None:
        raise NotFound(f"there is no receiver {receiver_id}")
    return receiver


def find_receiver(name: str) -> Receiver:
    """Return a receiver by its name or number.

    Raises:
        NotFound: it does not exist.
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
    """Add a receiver of alarms, and notify it at once of those that fire.

    Args:
        name: name that operators see.
        kind: `webhook` or `email`.
        target: URL or e-mail address.
        actor: actor that adds it.
        secret: secret of a webhook; generated if empty.
        min_severity: `info`, `warning` or `critical`.
        enabled: whether it gets notices.

    Raises:
        Invalid, Conflict: a field is invalid; there are too many receivers.
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
    """Generate a secret for the signatures of one receiver."""
    return secrets.token_urlsafe(32)


def change_receiver(receiver_id: int, *, actor: Actor, **fields: Any) -> Receiver:
    """Change some fields of a receiver, but never its kind.

    Args:
        receiver_id: id of the receiver.
        actor: actor that changes it.
        fields: `name`, `target`, `secret`, `min_severity`, `enabled`; missing fields keep their
            values.

    Raises:
        NotFound, Invalid: it does not exist; a field is invalid.
    """
    with audit.change(actor, "receiver.change", target=receiver_id) as change:
        rounds.held()  # no process enqueues notices for it meanwhile
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
        receiver.retry_at = 0.0  # the change may have fixed the failure
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
    """Remove a receiver and the record of its notices.

    Raises:
        NotFound: it does not exist.
    """
    with audit.change(actor, "receiver.remove", target=receiver_id) as change:
        rounds.held()
        receiver = get_receiver(receiver_id)
        change.target, change.before = receiver.name, _receiver(receiver)
        receiver.delete()


def send_test(receiver_id: int, *, actor: Actor) -> Answer:
    """Send a test notice to a receiver at once, before notices that wait for it.

    Returns:
        The receiver's answer.

    Raises:
        NotFound: it does not exist.
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
    # Not inside a change, which would block all other writers while a receiver is slow.
    answer = delivery.send(receiver, {**told, "sequence": 0})
    audit.record(
        actor, "receiver.test", target=receiver.name, after={"ok": answer.ok, "said": answer.text}
    )
    if answer.ok:
        # It accepts notices, so waiting notices need not wait for the end of the back-off.
        Receiver.objects.filter(pk=receiver.pk).update(retry_at=0.0, failures=0)
    return answer


def shown_target(receiver: Receiver) -> str:
    """Return the target of a receiver, without the part of its URL that may be a secret."""
    if receiver.kind == ReceiverKind.EMAIL:
        return receiver.target
    parts = urlsplit(receiver.target)
    hidden = parts.path.strip("/") or parts.query
    return f"{parts.scheme}://{parts.netloc}/{'…' if hidden else ''}"


def revision_of(receiver: Receiver) -> str:
    """Return a keyed hash of all settings, including hidden ones, which it does not disclose."""
    settled = (receiver.name, receiver.kind, receiver.target, receiver.secret)
    document = json.dumps([*settled, receiver.min_severity, receiver.enabled])
    return salted_hmac("relay.alarms.receiver", document, algorithm="sha256").hexdigest()[:16]


def waiting_by_receiver(receivers: Sequence[Receiver]) -> dict[int, int]:
    """Return the number of waiting notices of each receiver."""
    found: dict[int, int] = {each.pk: 0 for each in receivers}
    waiting = Delivery.objects.filter(outcome=Outcome.WAITING, receiver__in=found)
    for receiver_id in waiting.values_list("receiver", flat=True):
        found[receiver_id] += 1
    return found


def check(receiver: Receiver) -> None:
    """Check the fields of a receiver.

    Raises:
        Invalid: some fields are invalid; the error names them.
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
