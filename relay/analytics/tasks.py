"""The Celery task of the analytics, which calls `daily`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from celery import shared_task
from django.db import DatabaseError

from relay.analytics import daily, ledger
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.ops import background

logger = logging.getLogger(__name__)


@shared_task(name="analytics.daily")  # type: ignore[untyped-decorator]
def compute_daily() -> None:
    """Run the jobs of the day if they are due."""
    try:
        ledger.note_killed(Lake.configured())
        tried = daily.begin(datetime.now(UTC), background.stopping)
    except (OSError, AnalyticsError, DatabaseError) as error:
        logger.error("the jobs of analytics are not run: %s", error)
        return
    if tried is None:
        return
    if tried.done:
        logger.info("the jobs of analytics are done")
    elif tried.busy:
        logger.info(
            "jobs of analytics wait %d minutes: %s", daily.BUSY_AFTER.seconds // 60, tried.error
        )
    else:
        logger.error("the jobs of analytics failed, try %d: %s", tried.tries, tried.error)
