"""The broker of background work: the relay's own Redis, under a key prefix of its own.

Celery's messages carry no mail, only "look at shard 3": losing one costs a beat of the schedule.
"""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import quote

from redis.connection import SSLConnection, parse_url

from relay.ops.background import KEY_PREFIX

VISIBILITY_S: Final = 3600
"""A task whose worker died is given to another after so long: above the longest task, or two would
run at once. What matters sooner is started again by the schedule."""

ANSWER_S: Final = 10.0
"""Longest wait for one answer of Redis; workers ask for work with a wait of 1 s."""

CONNECT_S: Final = 2.0


def settings_of(url: str) -> dict[str, Any]:
    """Celery's broker settings for a Redis URL.

    The forms are those of redis-py (`redis://`, `rediss://`, `unix://`); the messaging library
    spells the last one `redis+socket://`, with the database as `virtual_host`.

    Raises:
        ValueError: the URL cannot be read.
    """
    found: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    login = ""
    if found.get("username") or found.get("password"):
        user, password = found.get("username") or "", found.get("password") or ""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@"
    database = int(found.get("db") or 0)
    settings: dict[str, Any] = {
        "broker_transport_options": {
            "global_keyprefix": KEY_PREFIX,
            "visibility_timeout": VISIBILITY_S,
            "socket_timeout": ANSWER_S,
            "socket_connect_timeout": CONNECT_S,
            "socket_keepalive": True,
        }
    }
    if "path" in found:
        path = quote(str(found["path"]))
        settings["broker_url"] = f"redis+socket://{login}{path}?virtual_host={database}"
        return settings
    host = str(found.get("host") or "localhost")
    place = f"[{host}]" if ":" in host else host
    settings["broker_url"] = f"redis://{login}{place}:{found.get('port') or 6379}/{database}"
    if found.get("connection_class") is SSLConnection:
        options = {name: value for name, value in found.items() if name.startswith("ssl_")}
        settings["broker_use_ssl"] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, **options}
    return settings
