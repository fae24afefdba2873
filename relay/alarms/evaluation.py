"""Evaluation of all alarms, every 5 s, by the process that reserves it first.

    reserve the one row -> take all readings -> in one transaction: step each alarm, record its
    events, enqueue notices for receivers (`rounds`) -> start to deliver

The Celery schedule evaluates; the operator site does if no other process has (`standby`). The
reservation is in the database, so that it works while Redis is unavailable. An evaluation writes
its results only if it still has its reservation. A change by an operator in between takes effect at
once, with the last readings: see `reconsider`.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from relay.alarms import bounds, delivery
from relay.alarms.machine import Phase
from relay.alarms.models import (
    Alarm,
    AlarmEvent,
    Delivery,
    Evaluation,
    Outcome,
    Silence,
)
from relay.alarms.readings.look import Reading
from relay.alarms.readings.take import Unknown, take
from relay.alarms.rounds import Round, while_starting
from relay.alarms.rules import Rule
from relay.ops.redis_client import client

logger = logging.getLogger(__name__)

PRUNE_S: Final = 3600.0
_PRUNED: Final = "pruned"
clock = time.time
"""Clock of the state machine, in unix seconds."""
EARLY_S: Final = bounds.PERIOD_S * 0.8
"""Least seconds between two evaluations: with several hosts, each has a schedule."""


def evaluate(by: str) -> bool:
    """Evaluate all alarms once.

    Args:
        by: name of the caller, which operators see.

    Returns:
        Whether this call evaluated: another process may be evaluating, or have just done so.

    Raises:
        django.db.Error: the database does not answer.
    """
    token = _reserve(by)
    if not token:
        return False
    began = time.monotonic()
    memory = Evaluation.objects.values_list("memory", flat=True).get(pk=Evaluation.ONLY)
    taken = take(settings.RMB, client(), memory)
    with transaction.atomic():
        row = Evaluation.objects.select_for_update().filter(pk=Evaluation.ONLY, token=token).first()
        if row is None:
            return False
        now = clock()
        # After a pause, such as while the relay was off, the time since which a reading is unknown
        # starts again.
        before = row.unknown if abs(now - row.done) < bounds.LATE_S else {}
        row.unknown = _unknown(before, taken.unknown, now)
        readings = {**taken.readings, "database_away": {"": Reading(0.0)}}
        readings["reading_unknown"] = _unknown_readings(row.unknown, now)
        if taken.starting:
            readings = while_starting(readings)
        Round(now).run(readings)
        row.readings = readings
        row.memory = {**taken.memory, _PRUNED: _prune(memory.get(_PRUNED, 0.0), now)}
        row.token, row.until, row.done = "", 0.0, now
        row.took_s = round(time.monotonic() - began, 3)
        row.save()
    delivery.start_due()
    return True


def reconsider(row: Evaluation, rules: Iterable[Rule]) -> None:
    """Step some rules with their last readings, so that an operator's change takes effect at once.

    Args:
        row: row that `rounds.held` has locked in the caller's transaction.
        rules: rules to step.
    """
    now = clock()
    if not abs(now - row.done) < bounds.LATE_S:
        return  # readings are old; the next evaluation takes new ones
    this_round = Round(now)
    for rule in rules:
        found = row.readings.get(rule.key)
        readings = found and {subject: Reading(*each) for subject, each in found.items()}
        this_round.run_rule(rule, readings)


def age_s(now: float | None = None) -> float | None:
    """Return the seconds since the last evaluation ended; None before the first.

    Raises:
        django.db.Error: the database does not answer.
    """
    done = Evaluation.objects.filter(pk=Evaluation.ONLY).values_list("done", flat=True).first()
    return abs((clock() if now is None else now) - done) if done else None


def done_by(who: str) -> bool:
    """Check whether the last evaluation was done by a process of this name, as given to `evaluate`.

    Raises:
        django.db.Error: the database does not answer.
    """
    return Evaluation.objects.filter(pk=Evaluation.ONLY, by__startswith=f"{who} ").exists()


def _reserve(by: str) -> str:
    """Reserve one evaluation and return its token; empty if it is not this process's turn."""
    now = clock()
    row, _ = Evaluation.objects.get_or_create(pk=Evaluation.ONLY)
    free = Q(until__lte=now) | Q(until__gt=now + 2 * bounds.EVALUATION_S)  # a clock set back
    its_time = Q(done__lte=now - EARLY_S) | Q(done__gt=now + 1.0)
    token = secrets.token_hex(16)
    found = Evaluation.objects.filter(free & its_time, pk=row.pk).update(
        token=token,
        until=now + bounds.EVALUATION_S,
        by=f"{by} {socket.gethostname()}/{os.getpid()}"[:100],
    )
    return token if found else ""


def _unknown(before: Mapping[str, Any], found: Mapping[str, Unknown], now: float) -> dict[str, Any]:
    """Return what cannot be read, and since when."""
    return {
        name: {
            "since": before[name]["since"] if name in before else now,
            "error": each.error,
            "rules": list(each.rules),
            "redis_away": each.redis_away,
        }
        for name, each in found.items()
    }


def _unknown_readings(unknown: Mapping[str, Any], now: float) -> dict[str, Reading]:
    return {
        name: Reading(round(max(0.0, now - each["since"]), 1), each["error"])
        for name, each in unknown.items()
        if not each["redis_away"]  # `redis_away` is the alarm for these
    }


def _prune(pruned: float, now: float) -> float:
    """Delete old history once an hour, and return the unix time of the last deletion."""
    if abs(now - pruned) < PRUNE_S:
        return pruned
    before = _time(now) - timedelta(days=bounds.KEEP_DAYS)
    AlarmEvent.objects.filter(at__lt=before).delete()
    Delivery.objects.filter(created__lt=before).exclude(outcome=Outcome.WAITING).delete()
    Silence.objects.filter(until__lt=_time(now)).delete()
    Alarm.objects.filter(phase=Phase.QUIET, since__lt=before).delete()
    for model in (AlarmEvent, Delivery):
        beyond = model.objects.order_by("-pk").values_list("pk", flat=True)[bounds.KEEP_EVENTS :]
        last = beyond.first()
        if last is not None:
            model.objects.filter(pk__lte=last).delete()
    return now


def _time(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
