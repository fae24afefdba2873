"""A process that writes audit entries from several threads, for tests of concurrent writers."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

import django
from django.utils import timezone

THREADS = 3


def main(count: int, days_ago: int) -> None:
    """Write `count` entries with each thread, by a clock that is some days behind.

    Every third one is rolled back.
    """
    django.setup()
    at = timezone.now() - timedelta(days=days_ago)
    timezone.now = lambda: at  # type: ignore[assignment]
    from django.db import connection

    from relay.access.actor import SYSTEM
    from relay.audit import services

    def write() -> None:
        try:
            for number in range(count):
                try:
                    with services.change(SYSTEM, "session.kick", target=number):
                        if number % 3 == 2:
                            raise ValueError("given up")
                except ValueError:
                    continue
        finally:
            connection.close()

    threads = [threading.Thread(target=write) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
