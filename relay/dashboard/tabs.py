"""The pages that stand side by side under one entry of the menu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.http import HttpRequest
from django.urls import reverse

from relay.dashboard import pages
from relay.dashboard.tables import Tab


class Entry(NamedTuple):
    """A page of a group.

    Attributes:
        name: of its address, without the namespace.
        action: of the matrix; who may not do it does not see the tab.
    """

    title: str
    name: str
    action: str


def tabs(request: HttpRequest, entries: Sequence[Entry], current: str = "") -> list[Tab]:
    """The tabs of a page, for the frame's context as `tabs`.

    Args:
        entries: of the group.
        current: name of the one that the page belongs to, where it is not that page itself.
    """
    match = request.resolver_match
    shown = current or (match.url_name if match else "")
    return [
        Tab(entry.title, reverse(f"console:{entry.name}"), entry.name == shown)
        for entry in entries
        if pages.may(request, entry.action)
    ]
