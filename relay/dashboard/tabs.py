"""Tabs: the pages grouped under one entry of the menu."""

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
        name: name of its URL, without the namespace.
        action: action of the permission matrix; the tab is hidden from accounts that may not do it.
    """

    title: str
    name: str
    action: str


def tabs(request: HttpRequest, entries: Sequence[Entry], current: str = "") -> list[Tab]:
    """Return the tabs of a page, for the frame's context as `tabs`.

    Args:
        entries: pages of the group.
        current: name of the entry to mark, if the page is not an entry itself.
    """
    match = request.resolver_match
    shown = current or (match.url_name if match else "")
    return [
        Tab(entry.title, reverse(f"console:{entry.name}"), entry.name == shown)
        for entry in entries
        if pages.may(request, entry.action)
    ]
