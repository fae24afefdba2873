"""ASGI applications.

``admin`` is the operator site alone: what ``runrelay`` starts on its own listener, and what any
ASGI server can run. ``application`` adds the relay's websocket routes: for ``runserver`` in
development. Production workers do not come through here; ``relay.server`` routes sockets itself.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")

# WhiteNoise hands Django a file, which is read in one piece under ASGI. Static files of the site
# are small, and a proxy may serve them.
warnings.filterwarnings("ignore", "StreamingHttpResponse must consume synchronous iterators")

admin = get_asgi_application()


async def _relay(scope: Any, receive: Any, send: Any) -> None:
    """The relay's routes, imported at the first socket: the operator site does without them."""
    from relay.sessions.routing import websocket_urlpatterns

    await URLRouter(websocket_urlpatterns)(scope, receive, send)


application = ProtocolTypeRouter({"http": admin, "websocket": _relay})
