"""Reporting of service errors by the console and by commands."""

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
    """Return the actor that uses the console."""
    return of_request(request, Face.ADMIN)


def tell_pending(request: HttpRequest) -> None:
    """Show a warning on the next page if decisions are not in force yet."""
    if pending.waiting():
        messages.warning(request, pending.TEXT)


@contextlib.contextmanager
def in_command() -> Iterator[None]:
    """Turn a service error into a command error with one line and exit code 1."""
    try:
        yield
    except ServiceError as error:
        raise CommandError(error.detail) from None
