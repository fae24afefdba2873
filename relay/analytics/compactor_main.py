"""The compactor as a child of a relay that records.

Started by the supervisor like the other children. A relay may record before anything is installed
that writes Parquet: then segments wait, and the oldest are dropped when they are too many.
"""

from __future__ import annotations

import argparse
import logging
import logging.config
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final

from django.conf import settings

from relay.analytics import backlog, places
from relay.server.lifeline import tell_ready, watch_parent

BOUND_EVERY_S: Final = 5.0
ORPHAN_GRACE_S: Final = 15.0

logger = logging.getLogger("relay.analytics.compactor")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compact until SIGTERM or until the parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    options = parser.parse_args(arguments)
    stop = threading.Event()
    # In a thread: the handler may run while this one holds the event's lock.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop.set).start())
    watch_parent(options.lifeline_fd, grace_s=ORPHAN_GRACE_S)
    logging.config.dictConfig(settings.LOGGING)
    config = settings.RMB.analytics
    try:
        from relay.analytics.compactor_loop import compact  # imports Arrow
    except ImportError as error:
        logger.error(
            "%s is not installed (make setup-analytics): events wait as segments, up to %d bytes",
            error.name,
            config.segments_max_bytes,
        )
        tell_ready(options.ready_fd)
        while not stop.wait(BOUND_EVERY_S):
            backlog.keep_within(places.configured(), config.segments_max_bytes)
        return 0
    tell_ready(options.ready_fd)
    compact(places.configured().root, config, stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
