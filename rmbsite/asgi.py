"""ASGI applications.

``admin`` is the operator site alone: ``runrelay`` starts it on its own listener, and any ASGI
server can run it. ``application`` adds the relay's websocket routes, for ``runserver`` in
development. Production workers do not use this module; ``relay.server`` routes their sockets
itself.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from uvicorn.logging import TRACE_LOG_LEVEL

from relay.server.client_address import name_clients
from rmbsite import telemetry

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")

# Check the server's log level as set on its command line, before Django's logging settings apply.
if 0 < logging.getLogger("uvicorn.error").getEffectiveLevel() <= TRACE_LOG_LEVEL:
    raise ImproperlyConfigured(
        "uvicorn's log level trace prints requests with their query string, which is the token of "
        "a client: choose debug or a less talkative one"
    )

# Each request has a thread of its own, which ends with it. A persistent connection would never be
# used again, and after some hundred requests PostgreSQL would have no connections left.
for database in settings.DATABASES.values():
    database["CONN_MAX_AGE"] = 0

# This must come before the application is created, which assembles the middleware.
telemetry.set_up(settings.RMB.otel, "site")

_site = get_asgi_application()


async def _sockets(scope: Any, receive: Any, send: Any) -> None:
    """Serve the console's live numbers and operators' calls; imported at the first socket."""
    from relay.calls.endpoint import PATH, endpoint
    from relay.dashboard.live import application

    if scope["path"] == PATH:
        await endpoint(_site, scope, receive, send)
    else:
        await application(scope, receive, send)


# The audit log and the rate limit of sign-ins need the address of the client, not of the proxy.
admin = name_clients(
    ProtocolTypeRouter({"http": _site, "websocket": _sockets}), settings.RMB.relay.trusted_proxies
)


async def _relay(scope: Any, receive: Any, send: Any) -> None:
    """Serve the relay's routes; imported at the first socket, as the operator site does not need
    them.
    """
    from relay.calls import endpoint
    from relay.dashboard import live
    from relay.sessions.routing import websocket_urlpatterns

    if scope["path"] in (live.PATH, endpoint.PATH):
        await admin(scope, receive, send)
        return
    await URLRouter(websocket_urlpatterns)(scope, receive, send)


application = ProtocolTypeRouter({"http": admin, "websocket": _relay})
