"""Map names of the documentation range to addresses of this host, for relays in screenshots.

`TEST_ADDRESSES` is `name=address,…`; a process that has this folder on its `PYTHONPATH` looks these
names up there and all others as usual.
"""

from __future__ import annotations

import os
import socket
from typing import Any

_ADDRESSES = dict(pair.split("=") for pair in os.environ["TEST_ADDRESSES"].split(","))
_look_up = socket.getaddrinfo


def _named(host: Any, *arguments: Any, **options: Any) -> Any:
    return _look_up(_ADDRESSES.get(host, host), *arguments, **options)


socket.getaddrinfo = _named
