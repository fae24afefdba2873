"""The menu of the operator site: the console's pages."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse_lazy

from relay.access import matrix


def _page(title: str, icon: str, name: str, action: str) -> dict[str, Any]:
    """Return the menu entry of a console page, which only users with the permission for `action`
    see.

    The entry's key, pressed after `g`, opens the page: see `_KEYS`.
    """
    permission = matrix.permission_of(action)

    def active(request: HttpRequest) -> bool:
        match = request.resolver_match
        return bool(match and match.namespace == "console" and _section(match.url_name) == name)

    return {
        "title": title,
        "icon": icon,
        "key": _KEYS.get(name, ""),
        "link": reverse_lazy(f"console:{name}"),
        "active": active,
        "permission": lambda request: _is_served(name) and request.user.has_perm(permission),
    }


def _is_served(name: str) -> bool:
    """Return whether the settings enable what a page shows."""
    return name != "lattice_hosts" or settings.RMB.lattice.enabled


def _section(url_name: str | None) -> str:
    """Return the menu page that a page belongs to: `queue_purge` belongs to `queues`."""
    name = url_name or ""
    return _BELONGS.get(name.partition("_")[0], name)


_KEYS: Final = {
    "overview": "o",
    "sessions": "s",
    "queues": "q",
    "workers": "w",
    "tasks": "b",
    "traces": "r",
    "twins": "t",
    "limits": "l",
    "relays": "f",
    "chain": "c",
    "lattice_hosts": "p",
    "alarms": "a",
    "audit": "u",
    "analytics": "n",
    "access": "i",
    "settings": "e",
}
_BELONGS: Final = {
    "access": "access",
    "alarm": "alarms",
    "alarms": "alarms",
    "analytics": "analytics",
    "audit": "audit",
    "chain": "chain",
    "chart": "overview",
    "connection": "sessions",
    "connections": "sessions",
    "first": "first_steps",
    "lattice": "lattice_hosts",
    "letter": "letters",
    "limit": "limits",
    "link": "lattice_hosts",
    "operation": "lattice_hosts",
    "outbox": "outbox",
    "policy": "lattice_hosts",
    "queue": "queues",
    "relay": "relays",
    "session": "sessions",
    "task": "tasks",
    "trace": "traces",
    "twin": "twins",
    "worker": "workers",
}


def account_links(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the links below the name of the signed-in user."""
    links = []
    if request.user.has_perm(matrix.permission_of("worker.view")):
        links.append({"title": "Your account", "link": reverse_lazy("console:access_own")})
    if request.user.is_authenticated and request.user.has_usable_password():
        links.append({"title": "Change password", "link": reverse_lazy("admin:password_change")})
    return links


NAVIGATION: Final[list[dict[str, Any]]] = [
    {
        "title": "Relay",
        "items": [
            _page("Overview", "monitoring", "overview", "worker.view"),
            _page("First steps", "flag", "first_steps", "setting.view"),
            _page("Sessions", "sensors", "sessions", "session.view"),
            _page("Queues", "inbox", "queues", "queue.view"),
            _page("Workers", "memory", "workers", "worker.view"),
            _page("Nodes", "dns", "nodes", "worker.view"),
            _page("Background tasks", "manufacturing", "tasks", "task.view"),
            _page("Traces", "troubleshoot", "traces", "trace.view"),
        ],
    },
    {
        "title": "Twins",
        "items": [
            _page("Twins", "group", "twins", "twin.view"),
            _page("Limits and bans", "speed", "limits", "limit.view"),
            _page("Chain", "link", "chain", "chain.view"),
        ],
    },
    {
        "title": "Lattice",
        "items": [_page("Lattice", "hub", "lattice_hosts", "lattice.view")],
    },
    {
        "title": "Federation",
        "items": [
            _page("Relays", "lan", "relays", "relay.view"),
            _page("Outbox", "outbox", "outbox", "letter.view"),
            _page("Dead letters", "unsubscribe", "letters", "letter.view"),
        ],
    },
    {
        "title": "Alarms",
        "items": [
            _page("Alarms", "notifications_active", "alarms", "alarm.view"),
        ],
    },
    {
        "title": "Analytics",
        "items": [
            _page("Analytics", "query_stats", "analytics", "analytics.view"),
        ],
    },
    {
        "title": "Operators",
        "items": [
            _page("Access", "shield_person", "access", "account.view"),
            _page("Audit", "receipt_long", "audit", "audit.view"),
            _page("Settings", "tune", "settings", "setting.view"),
            {
                "title": "REST API",
                "icon": "api",
                "link": reverse_lazy("api_docs"),
                "active": lambda request: request.path.startswith("/api/docs/"),
            },
        ],
    },
]
