"""The compactor as a child process of a relay that records.

The supervisor starts it like the other children. A relay may record although the packages that
write Parquet are not installed: then segments wait, and the oldest ones are dropped when all of
them together become too large.
"""

from __future__ import annotations

import argparse
import logging
import logging.config
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final

from django.conf import settings

from relay.analytics import backlog, lag, places
from relay.analytics.places import Places
from relay.analytics.recording import relay_name
from relay.ops.redis_client import client
from relay.server.lifeline import tell_ready, watch_parent

NICENESS: Final = 10
"""Nice value: where cores are scarce, workers and Redis go first, because only files wait."""
BOUND_EVERY_S: Final = 5.0
ORPHAN_GRACE_S: Final = 15.0
TOLD_WITHIN_S: Final = 2.0
"""Seconds that the end of the process waits for the last message to Redis."""

logger = logging.getLogger("relay.analytics.compactor")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compact until SIGTERM, or until the parent process has ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    options = parser.parse_args(arguments)
    os.nice(NICENESS)
    stop = threading.Event()
    # Set in another thread: the handler may run while this thread holds the lock of the event.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop.set).start())
    watch_parent(options.lifeline_fd, grace_s=ORPHAN_GRACE_S)
    logging.config.dictConfig(settings.LOGGING)
    folders = places.configured()
    telling = threading.Thread(
        target=lag.tell, args=(client(), folders, stop), name="lag", daemon=True
    )
    telling.start()
    _work(folders, stop, options.ready_fd)
    telling.join(TOLD_WITHIN_S)
    return 0


def _work(folders: Places, stop: threading.Event, ready_fd: int) -> None:
    config = settings.RMB.analytics
    try:
        from relay.analytics.compactor_loop import compact  # imports Arrow
    except ImportError as error:
        logger.error(
            "%s is not installed (make setup-analytics): events wait as segments, up to %d bytes",
            error.name,
            config.segments_max_bytes,
        )
        tell_ready(ready_fd)
        while not stop.wait(BOUND_EVERY_S):
            backlog.keep_within(folders, config.segments_max_bytes)
        return
    tell_ready(ready_fd)
    compact(folders.root, config, stop, client(), relay_name(settings.RMB))


if __name__ == "__main__":
    sys.exit(main())
