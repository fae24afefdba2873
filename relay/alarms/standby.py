"""Alarms when the schedule does not evaluate them: a thread of the operator site's process.

Every few seconds it checks when the last evaluation ended. While the schedule works, it does no
more. If Celery or Redis is unavailable, the thread evaluates, and the alarms about both are sent as
usual. If the database is unavailable too, nothing can be evaluated: the thread keeps that one alarm
in memory, notifies the receivers that it read last, and records what it did when the database is
available again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from relay.alarms import bounds, delivery, evaluation, notice, rounds
from relay.alarms.machine import Change, Limits, Track, step
from relay.alarms.models import Alarm, Delivery, Kind, Outcome, Receiver, State
from relay.alarms.rules import BY_KEY, Override, Severity, limits_of
from relay.ops.printable import shown

logger = logging.getLogger(__name__)

RULE: Final = BY_KEY["database_away"]
WHO: Final = "operator site"
ACTING_S: Final = 2 * bounds.PERIOD_S
"""Seconds between the thread's own evaluations, long enough that the schedule can resume."""
RETRY_S: Final = 30.0
"""Seconds between two tries to notify a receiver while the database is unavailable."""

STOP_S: Final = 5.0


class Standby:
    """The thread and its state."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._began = clock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._limits: Limits | None = RULE.limits
        self._receivers: list[Receiver] = []
        self._track = Track()
        self._told: notice.Document | None = None
        self._untold: list[Receiver] = []
        self._tell_at = 0.0
        self._detail = ""
        self._missing = False

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="alarm standby", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; wait for the check in progress, but not longer than `STOP_S`."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def look(self) -> None:
        """Check once whether to evaluate, or to report that the database does not answer."""
        try:
            self._remember()
            age_s = evaluation.age_s(self._clock())
            acting = evaluation.done_by(WHO)
        except (OperationalError, InterfaceError) as error:
            self._database_away(str(error))
            return
        except DatabaseError as error:
            if not self._missing:  # the tables do not exist yet
                logger.error(
                    "alarms are not evaluated: %s", shown(str(error), bounds.MAX_DETAIL_CHARS)
                )
                self._missing = True
            return
        self._missing = False
        try:
            if self._track != Track():
                self._database_back()
            if age_s is None or age_s > (ACTING_S if acting else bounds.LATE_S):
                # The time in which the relay was off does not count as missed.
                missed_s = min(age_s or 0.0, self._clock() - self._began)
                if missed_s > bounds.LATE_S and not acting:
                    logger.error("alarms were not evaluated for %.0f s: done here now", missed_s)
                evaluation.evaluate(WHO)
        except DatabaseError as error:
            logger.warning(
                "alarms are not evaluated for now: %s", shown(str(error), bounds.MAX_DETAIL_CHARS)
            )

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                logger.exception("alarms: standby")
            finally:
                connections.close_all()
            if self._ended.wait(bounds.PERIOD_S):
                return

    def _remember(self) -> None:
        """Store in memory what is needed while the database is unavailable."""
        self._receivers = list(Receiver.objects.filter(enabled=True).order_by("pk"))
        override = rounds.overrides().get(RULE.key)
        on = override is None or override.enabled
        self._limits = limits_of(RULE, override or Override()) if on else None

    def _database_away(self, error: str) -> None:
        if self._limits is None:
            return
        now = self._clock()
        self._detail = shown(error, bounds.MAX_DETAIL_CHARS)
        self._track, changes = step(self._limits, self._track, 1.0, now)
        if Change.TELL_FIRED in changes:
            logger.error("alarm %s: %s", RULE.title, self._detail)
            self._told = notice.document(
                notice.FIRED,
                RULE,
                at=now,
                domains=settings.RMB.relay.domains,
                value=1.0,
                since=now,
                detail=self._detail,
            )
            self._untold = [
                each
                for each in self._receivers
                if RULE.severity.rank >= Severity(each.min_severity).rank
            ]
            self._tell_at = now
        if self._told is not None and self._untold and now >= self._tell_at:
            self._untold = [each for each in self._untold if not self._tell(each, self._told)]
            self._tell_at = self._clock() + RETRY_S

    def _tell(self, receiver: Receiver, told: notice.Document) -> bool:
        # It goes before notices that wait for this receiver, which cannot be read now.
        answer = delivery.send(receiver, {**told, "sequence": 0})
        if not answer.ok:
            logger.warning("alarm not delivered to %s: %s", receiver.name, answer.text)
        return answer.ok

    def _database_back(self) -> None:
        """Record the alarm and its notices in the database; the next evaluation ends it."""
        track, told = self._track, self._told
        with transaction.atomic():
            if track.active and told is not None:
                self._adopt(track, told)
        self._track, self._told, self._untold = Track(), None, []

    def _adopt(self, track: Track, told: notice.Document) -> None:
        rounds.held()
        fired = datetime.fromtimestamp(track.since, UTC)
        alarm, _ = Alarm.objects.get_or_create(
            rule=RULE.key,
            subject="",
            defaults={"severity": RULE.severity, "state": State.FIRING, "since": fired},
        )
        if not alarm.active:
            alarm.state, alarm.since, alarm.fired_at = State.FIRING, fired, fired
            alarm.detail = self._detail
            alarm.track = track
            alarm.save()
            rounds.note(alarm, Kind.FIRED, "", track.since)
        untold = {each.pk for each in self._untold}
        ids = {each.pk for each in self._receivers}
        for receiver in Receiver.objects.filter(pk__in=ids, enabled=True):
            if RULE.severity.rank < Severity(receiver.min_severity).rank:
                continue
            if receiver.pk in untold:
                delivery.enqueue(told, [receiver])
            else:
                Delivery.objects.create(
                    receiver=receiver,
                    event_id=told["id"],
                    body={**told, "sequence": 0},
                    created=fired,
                    outcome=Outcome.SENT,
                    tries=1,
                    ended=fired,
                )
