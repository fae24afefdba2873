"""The client's own address, also through a dual-stack socket or a proxy.

`X-Forwarded-For` is trusted only from the configured networks and on Unix-socket listeners: a peer
that can open such a listener has no address of its own and is the local proxy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from relay.server.socket import EXTENSION

LOCAL_PROXY: Final = "unix"
SCHEME: Final = b"x-forwarded-proto"
FORWARDED: Final = (b"x-forwarded-for", SCHEME)
_MAPPED_IPV4: Final = "::ffff:"


def name_clients(app: Any, trusted_proxies: Sequence[str]) -> Any:
    """Wrap an ASGI application so that scope and relay socket name the client, not the proxy."""

    async def told(scope: Any, receive: Any, send: Any) -> None:
        _tell_socket(scope)
        await app(scope, receive, send)

    behind_proxy: Any = ProxyHeadersMiddleware(told, [*trusted_proxies, LOCAL_PROXY])

    async def named(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            scope["client"] = plain_client(scope.get("client"))
            if not any(name in FORWARDED for name, _ in scope["headers"]):
                _tell_socket(scope)  # whether the peer is a proxy does not matter
                await app(scope, receive, send)
                return
            scope["headers"] = _with_one_scheme(scope["headers"])
        await behind_proxy(scope, receive, send)

    return named


def _tell_socket(scope: Any) -> None:
    extension = scope.get("extensions", {}).get(EXTENSION)
    if extension is not None:
        extension["socket"].remote = shown_client(*scope["client"])


def _with_one_scheme(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers with one `X-Forwarded-Proto` in lower case: the client's, which is first.

    Each of several proxies appends the scheme by which it was reached.
    """
    found = list(headers)
    schemes = [value for name, value in found if name == SCHEME]
    if not schemes:
        return found
    first = schemes[0].partition(b",")[0].strip().lower()
    return [*(each for each in found if each[0] != SCHEME), (SCHEME, first)]


def plain_client(client: Sequence[Any] | None) -> tuple[str, int]:
    """Return a client's address; an IPv4 client of a dual-stack socket under its IPv4 address."""
    if not client or not client[0]:
        return (LOCAL_PROXY, 0)
    host, port = str(client[0]), client[1]
    mapped = host.removeprefix(_MAPPED_IPV4)
    return (mapped if mapped != host and "." in mapped else host, int(port or 0))


def shown_client(host: str, port: int) -> str:
    """Return an address as one word: logs and the session directory separate fields with spaces."""
    host = "_".join(host.split())
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
