"""How the admin and the commands tell what a service refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.core.management.base import CommandError
from django.http import HttpRequest

from relay.access.actor import Actor, Face, of_request
from relay.access.errors import Denied, ServiceError
from relay.ops import pending


def operator(request: HttpRequest) -> Actor:
    """Who uses the admin."""
    return of_request(request, Face.ADMIN)


def tell_pending(request: HttpRequest) -> None:
    """Say on the next page that decisions are not in force, where that is so."""
    if pending.waiting():
        messages.warning(request, pending.TEXT)


class PendingTold:
    """A `ModelAdmin` whose decisions may wait for Redis, which is known once they are committed."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._told(request, super().changeform_view(request, *args, **kwargs))  # type: ignore[misc]

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._told(request, super().changelist_view(request, *args, **kwargs))  # type: ignore[misc]

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._told(request, super().delete_view(request, *args, **kwargs))  # type: ignore[misc]

    def _told(self, request: HttpRequest, answer: Any) -> Any:
        if request.method == "POST":
            tell_pending(request)
        return answer


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
