"""Celery task of access, for accounts that sign in with OpenID Connect."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import Error as DatabaseError

from relay.access.sign_in import oidc

logger = logging.getLogger(__name__)


@shared_task(name="access.end_roles")  # type: ignore[untyped-decorator]
def end_roles() -> None:
    """Remove roles that the provider has not confirmed for too long."""
    try:
        oidc.end_roles()
    except DatabaseError as error:
        logger.error("roles of the provider are not looked at: %s", error)
