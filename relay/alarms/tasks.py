"""The Celery task of the alarms. What it does is in `evaluation`."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import Error as DatabaseError

from relay.alarms import evaluation

logger = logging.getLogger(__name__)


@shared_task(name="alarms.evaluate")  # type: ignore[untyped-decorator]
def evaluate() -> None:
    """Looks at everything once, unless somebody just did."""
    try:
        evaluation.evaluate("Celery")
    except DatabaseError as error:
        # The operator site sees it too, and tells receivers without the database.
        logger.error("alarms are not evaluated: %s", error)
