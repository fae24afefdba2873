"""The broker of background work: the relay's own Redis, with a separate key prefix.

Celery's messages contain no envelopes, only instructions such as "check shard 3"; a lost one costs
one interval of the schedule.
"""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import quote

from redispipe.address import RedisAddress
from relay.ops.background import KEY_PREFIX

VISIBILITY_S: Final = 3600
"""Seconds after which a task whose worker died is given to another. This is longer than the longest
task, as otherwise two would run at once. The schedule restarts urgent work sooner."""

ANSWER_S: Final = 10.0
"""Time-out of one answer of Redis; workers ask for tasks with a wait of 1 s."""

CONNECT_S: Final = 2.0


def settings_of(url: str) -> dict[str, Any]:
    """Return Celery's broker settings for a Redis URL.

    The messaging library spells `unix://` as `redis+socket://`, with the database as
    `virtual_host`.

    Raises:
        RedisAddressError: the URL cannot be parsed.
    """
    address = RedisAddress.parse(url)
    login = ""
    if address.user or address.password:
        login = f"{quote(address.user, safe='')}:{quote(address.password, safe='')}@"
    settings: dict[str, Any] = {
        "broker_transport_options": {
            "global_keyprefix": KEY_PREFIX,
            "visibility_timeout": VISIBILITY_S,
            "socket_timeout": ANSWER_S,
            "socket_connect_timeout": CONNECT_S,
            "socket_keepalive": True,
        }
    }
    if address.path:
        path = quote(address.path)
        settings["broker_url"] = f"redis+socket://{login}{path}?virtual_host={address.database}"
        return settings
    place = f"[{address.host}]" if ":" in address.host else address.host
    settings["broker_url"] = f"redis://{login}{place}:{address.port}/{address.database}"
    if address.tls:
        authorities = {"ssl_ca_certs": address.ca_file} if address.ca_file else {}
        settings["broker_use_ssl"] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, **authorities}
    return settings
