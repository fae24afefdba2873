"""A process in which the standby and an evaluation write the history of alarms at the same time.

It prints as JSON the events that a reader sees while both write, and again afterwards from the
last id that it knew, and all events that exist.
"""

from __future__ import annotations

import json
import threading
import time

import django

WAIT_S = 60.0


def main() -> None:
    """Write an event in a transaction that stays open, evaluate meanwhile, and read."""
    django.setup()
    from django.db import connection, transaction

    from relay.alarms import api, evaluation, notice, standby
    from relay.alarms.machine import Phase, Track
    from relay.alarms.models import AlarmEvent, Evaluation, RuleOverride

    Evaluation.objects.create(pk=Evaluation.ONLY)
    # Redis is unavailable, so that the evaluation has something to write.
    RuleOverride.objects.create(rule="redis_away", hold_s=0)
    now = time.time()
    told = notice.document(notice.FIRED, standby.RULE, at=now, domains=["relay.example"])
    written, go = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            standby.Standby()._adopt(Track(Phase.FIRING, since=now, told=True), told)
            written.set()
            go.wait(WAIT_S)
        connection.close()

    def evaluate() -> None:
        assert evaluation.evaluate("a test")
        connection.close()

    def waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return bool(cursor.fetchone()[0])

    site = threading.Thread(target=write)
    site.start()
    assert written.wait(WAIT_S)
    schedule = threading.Thread(target=evaluate)
    schedule.start()
    deadline = time.monotonic() + WAIT_S
    while schedule.is_alive() and not waits():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    seen = [each.pk for each in api._after(0)]
    go.set()
    for thread in (site, schedule):
        thread.join(WAIT_S)
    seen += [each.pk for each in api._after(max(seen, default=0))]
    kinds = AlarmEvent.objects.order_by("pk").values_list("pk", "rule", "kind")
    print(json.dumps({"seen": seen, "there": list(kinds)}))


if __name__ == "__main__":
    main()
