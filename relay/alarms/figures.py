"""Metrics of the alarms, read from the database at each scrape."""

from __future__ import annotations

from django.db.models import Count

from relay.alarms import evaluation
from relay.alarms.bounds import LATE_S
from relay.alarms.machine import Phase
from relay.alarms.models import Alarm, Delivery, Outcome
from relay.alarms.rules import Severity
from relay.ops.metric_names import series


def read() -> dict[str, float]:
    """Return series and their values; silenced and acknowledged alarms count as firing.

    Raises:
        django.db.Error: the database does not answer.
    """
    firing = dict(
        Alarm.objects.filter(phase__in=(Phase.FIRING, Phase.CLEARING))
        .order_by()
        .values_list("severity")
        .annotate(Count("pk"))
    )
    found = {
        series("relay_alarms_firing", severity=each): float(firing.get(each, 0))
        for each in Severity
    }
    waiting = Delivery.objects.filter(outcome=Outcome.WAITING).count()
    found["relay_alarm_notices_waiting"] = float(waiting)
    age_s = evaluation.age_s()
    if age_s is not None:
        found["relay_alarms_evaluation_age_seconds"] = round(age_s, 1)
    return found


def complaint() -> str:
    """Return what is wrong with the evaluation of alarms; empty if it works.

    Raises:
        django.db.Error: the database does not answer.
    """
    age_s = evaluation.age_s()
    if age_s is None:
        return "alarms were not evaluated yet"
    late = age_s > LATE_S
    return f"alarms were not evaluated for {age_s:.0f} s" if late else ""
