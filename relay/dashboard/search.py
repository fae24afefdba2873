"""Search over pages, twins, sessions, connections, relays and messages.

The palette (Ctrl+K on every page) requests the hits as JSON; without JavaScript the same hits are a
page. Each kind is searched only for accounts with the permission to view it, and is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from relay.access.errors import ServiceError
from relay.dashboard import pages
from relay.federation.models import RelayNode
from relay.mux import listing as connections
from relay.sessions import listing as sessions
from relay.twins import listing as twins

MAX_TEXT_CHARS: Final = 200
MOST: Final = 6
"""Maximum number of hits of one kind, so that it does not hide the others."""

_UID: Final = re.compile(r"[0-9A-Za-z-]{16,64}")
_SESSION: Final = re.compile(r"([0-9]{1,10}):(.+)")
_PEER: Final = re.compile(r"(?:sbd:)?([0-9A-Za-z_-]{4,43})")
"""Public key of an SBD client, or its beginning."""


class Hit(NamedTuple):
    """A search result.

    Attributes:
        kind: kind of object, in one word.
        icon: name of one of the theme's symbols.
    """

    kind: str
    title: str
    detail: str
    href: str
    icon: str


def find(request: HttpRequest, text: str) -> list[Hit]:
    """Return what a text may refer to, the likeliest first; all pages for an empty text."""
    # Stores refuse NUL, and no name contains characters that cannot be printed.
    wanted = "".join(filter(str.isprintable, text)).strip()[:MAX_TEXT_CHARS]
    found = list(_pages(request, wanted))
    if not wanted:
        return found
    for action, look in _LOOKS:
        if pages.may(request, action):
            try:
                found += look(wanted)
            except ServiceError:
                continue  # a store does not answer, or the text does not fit: skip this kind
    return found


def _pages(request: HttpRequest, text: str) -> Iterator[Hit]:
    words = text.lower().split()
    for group in admin.site.get_sidebar_list(request):  # type: ignore[attr-defined]  # the theme's
        for item in group["items"]:
            title = f"{group['title']} {item['title']}".lower()
            if item["has_permission"] and all(word in title for word in words):
                yield Hit("page", item["title"], group["title"], str(item["link"]), item["icon"])


def _twins(text: str) -> Iterator[Hit]:
    for twin in twins.search(text).order_by("id")[:MOST]:
        href = reverse("console:twin", args=[twin.pk])
        yield Hit("twin", f"Twin {twin.pk}", twin.relays or "no relay", href, "group")


def _sessions(text: str) -> Iterator[Hit]:
    key = _SESSION.fullmatch(text)
    if key:
        held = sessions.live(twin=int(key[1]), sid=key[2], limit=MOST).items
    elif text.isdecimal():
        held = sessions.live(twin=int(text), limit=MOST).items
    else:
        held = sessions.live(sid=text, limit=MOST).items or (
            sessions.live(address=text, limit=MOST).items if "." in text or "[" in text else []
        )
        if peer := _PEER.fullmatch(text):
            held += sessions.live(peer=peer[1], limit=MOST).items
    for each in held:
        query = f"?twin={each.twin}" if each.peer is None else f"?peer={each.peer}"
        detail = f"{each.address}, {each.user_agent or 'no user agent'}"
        yield Hit("session", each.key, detail, reverse("console:sessions") + query, "sensors")


def _connections(text: str) -> Iterator[Hit]:
    if "." not in text and ":" not in text:
        return
    for each in connections.live(address=text, limit=MOST).items:
        href = reverse("console:connection", args=[each.worker, each.number])
        detail = f"{each.sessions:,} sessions on streams"
        yield Hit("connection", each.address, detail, href, "hub")


def _relays(text: str) -> Iterator[Hit]:
    nodes = RelayNode.objects.filter(domain__icontains=text).order_by("domain")[:MOST]
    for node in nodes:
        href = reverse("console:relay", args=[node.domain])
        yield Hit("relay", node.domain, "partner relay", href, "lan")


def _messages(text: str) -> Iterator[Hit]:
    if _UID.fullmatch(text):
        href = reverse("console:trace_message", args=[text])
        yield Hit("message", text, "events of the message", href, "troubleshoot")


_LOOKS: Final[tuple[tuple[str, Callable[[str], Iterator[Hit]]], ...]] = (
    ("twin.view", _twins),
    ("session.view", _sessions),
    ("session.view", _connections),
    ("relay.view", _relays),
    ("trace.view", _messages),
)
