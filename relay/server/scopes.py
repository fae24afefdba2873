"""What several endpoints ask of an ASGI scope."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from relay.server.socket import EXTENSION


def has_query(scope: dict[str, Any]) -> bool:
    """Whether there is a question mark, with or without something behind it."""
    extension = scope.get("extensions", {}).get(EXTENSION)
    return bool(scope.get("query_string")) or (
        extension is not None and extension["query"] is not None
    )


def is_at(scope: dict[str, Any], places: Container[int | str]) -> bool:
    """Whether a request came to one of these listeners.

    Args:
        places: ports, and paths of Unix sockets.
    """
    server = scope.get("server") or ("", None)
    return (server[0] if server[1] is None else server[1]) in places
