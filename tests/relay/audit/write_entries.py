"""A process that writes audit entries from several threads: for tests of concurrent writers."""

from __future__ import annotations

import sys
import threading

import django

THREADS = 3


def main(count: int) -> None:
    """Write `count` entries with each thread; those after every third are rolled back."""
    django.setup()
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
    main(int(sys.argv[1]))
