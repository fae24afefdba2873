"""The menu of the operator site: the console's pages and the admin's lists of records."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse_lazy

from relay.access import matrix


def _page(title: str, icon: str, name: str, action: str) -> dict[str, Any]:
    """A page of the console; whoever may not do the action does not see the entry.

    Its key, after `g`, leads there: see `_KEYS`.
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
        "permission": lambda request: request.user.has_perm(permission),
    }


def _section(url_name: str | None) -> str:
    """The menu's page that a page belongs to: `queue_purge` belongs to `queues`."""
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
    "alarms": "a",
    "audit": "u",
    "access": "i",
    "settings": "e",
}
_BELONGS: Final = {
    "alarm": "alarms",
    "alarms": "alarms",
    "audit": "audit",
    "chain": "chain",
    "chart": "overview",
    "letter": "letters",
    "limit": "limits",
    "outbox": "outbox",
    "queue": "queues",
    "relay": "relays",
    "session": "sessions",
    "task": "tasks",
    "trace": "traces",
    "twin": "twins",
    "worker": "workers",
}


def _item(title: str, icon: str, app: str, model: str) -> dict[str, Any]:
    """A list of the admin; whoever may not see it does not see the entry."""
    name = f"{app}_{model}"
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{name}_changelist"),
        "active": lambda request: _shown(request, name),
        "permission": lambda request: request.user.has_perm(f"{app}.view_{model}"),
    }


def _shown(request: HttpRequest, name: str) -> bool:
    """Whether the request is for a page of this model."""
    match = request.resolver_match
    return bool(match and (match.url_name or "").startswith(f"{name}_"))


NAVIGATION: Final = [
    {
        "title": "Relay",
        "items": [
            _page("Overview", "monitoring", "overview", "worker.view"),
            _page("Sessions", "sensors", "sessions", "session.view"),
            _page("Queues", "inbox", "queues", "queue.view"),
            _page("Workers", "memory", "workers", "worker.view"),
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
        "title": "Operators",
        "items": [
            _item("Accounts", "person", "auth", "user"),
            _item("Groups", "shield_person", "auth", "group"),
            _item("API tokens", "key", "relay_access", "apitoken"),
            _page("Audit", "receipt_long", "audit", "audit.view"),
        ],
    },
]
