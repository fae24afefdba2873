"""How the console and the commands tell what a service refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.contrib import messages
from django.core.management.base import CommandError
from django.http import HttpRequest

from relay.access.actor import Actor, Face, of_request
from relay.access.errors import ServiceError
from relay.ops import pending


def operator(request: HttpRequest) -> Actor:
    """Return who uses the console."""
    return of_request(request, Face.ADMIN)


def tell_pending(request: HttpRequest) -> None:
    """Say on the next page that decisions are not in force, where that is so."""
    if pending.waiting():
        messages.warning(request, pending.TEXT)


@contextlib.contextmanager
def in_command() -> Iterator[None]:
    """End the command with one line and exit code 1."""
    try:
        yield
    except ServiceError as error:
        raise CommandError(error.detail) from None
