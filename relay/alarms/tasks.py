"""Celery tasks of the alarms; the work is in `evaluation` and `delivery`."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import Error as DatabaseError

from relay.alarms import delivery, evaluation

logger = logging.getLogger(__name__)


@shared_task(name="alarms.evaluate")  # type: ignore[untyped-decorator]
def evaluate() -> None:
    """Evaluate all alarms once, unless another process just did."""
    try:
        evaluation.evaluate("Celery")
    except DatabaseError as error:
        # The operator site notices it as well, and notifies receivers without the database.
        logger.error("alarms are not evaluated: %s", error)


@shared_task(name="alarms.deliver")  # type: ignore[untyped-decorator]
def deliver() -> None:
    """Start to deliver waiting notices, on behalf of a command."""
    try:
        delivery.start_due()
    except DatabaseError as error:
        logger.error("alarms are not delivered for now: %s", error)
