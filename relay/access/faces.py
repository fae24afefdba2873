"""How the admin and the commands tell what a service refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.contrib import messages
from django.core.management.base import CommandError
from django.http import HttpRequest

from relay.access.actor import Actor, Face, of_request
from relay.access.errors import Denied, ServiceError


def operator(request: HttpRequest) -> Actor:
    """Who uses the admin."""
    return of_request(request, Face.ADMIN)


@contextlib.contextmanager
def in_admin(request: HttpRequest) -> Iterator[None]:
    """Show an error as a message on the next page; what may not be done at all is a 403."""
    try:
        yield
    except Denied:
        raise
    except ServiceError as error:
        messages.error(request, error.detail)


@contextlib.contextmanager
def in_command() -> Iterator[None]:
    """End the command with one line and exit code 1."""
    try:
        yield
    except ServiceError as error:
        raise CommandError(error.detail) from None
