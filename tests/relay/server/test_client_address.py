"""The client address in a scope and on its socket."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from relay.server.client_address import name_clients
from relay.server.socket import EXTENSION


async def seen(
    client: tuple[str, int] | None, forwarded: str | None = None, trusted: tuple[str, ...] = ()
) -> tuple[Any, str]:
    """Return the client in the scope and on the socket, for a connection from `client`."""
    scopes: list[dict[str, Any]] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scopes.append(scope)

    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]
    relay_socket = SimpleNamespace(remote="the transport's")
    scope = {
        "type": "websocket",
        "scheme": "ws",
        "client": client,
        "headers": headers,
        "extensions": {EXTENSION: {"socket": relay_socket}},
    }
    await name_clients(app, trusted)(scope, None, None)
    return scopes[0]["client"], relay_socket.remote


@pytest.mark.parametrize(
    ("client", "named", "shown"),
    [
        (("198.51.100.7", 5), ("198.51.100.7", 5), "198.51.100.7:5"),
        (("2001:db8::1", 5), ("2001:db8::1", 5), "[2001:db8::1]:5"),
        (("::ffff:198.51.100.7", 5), ("198.51.100.7", 5), "198.51.100.7:5"),
        (("::ffff:1", 5), ("::ffff:1", 5), "[::ffff:1]:5"),
        (None, ("unix", 0), "unix"),
    ],
)
async def test_a_direct_client(client: Any, named: Any, shown: str) -> None:
    assert await seen(client) == (named, shown)


async def test_a_header_of_a_stranger_is_not_believed() -> None:
    named, _ = await seen(("198.51.100.7", 5), "203.0.113.9")
    assert named == ("198.51.100.7", 5)


@pytest.mark.parametrize("client", [("127.0.0.1", 5), ("::ffff:127.0.0.1", 5)])
async def test_a_trusted_proxy_is_believed(client: tuple[str, int]) -> None:
    named, shown = await seen(client, "203.0.113.9", ("127.0.0.0/8",))
    assert (named, shown) == (("203.0.113.9", 0), "203.0.113.9")


async def test_what_a_client_put_before_the_proxys_entry_is_not_believed() -> None:
    named, _ = await seen(("127.0.0.1", 5), "192.0.2.66, 203.0.113.9", ("127.0.0.1/32",))
    assert named == ("203.0.113.9", 0)


@pytest.mark.parametrize(
    ("values", "scheme"),
    [
        (["https"], "https"),
        (["HTTPS"], "https"),
        (["https, http"], "https"),
        ([" Https ,http"], "https"),
        (["https", "http"], "https"),
        (["http, https"], "http"),
        (["gopher"], "http"),
        ([""], "http"),
    ],
)
async def test_the_scheme_is_the_clients(values: list[str], scheme: str) -> None:
    scopes: list[dict[str, Any]] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scopes.append(scope)

    headers = [(b"x-forwarded-proto", value.encode()) for value in values]
    scope = {"type": "http", "scheme": "http", "client": ("127.0.0.1", 5), "headers": headers}
    await name_clients(app, ("127.0.0.0/8",))(scope, None, None)
    assert scopes[0]["scheme"] == scheme


async def test_the_peer_of_a_unix_socket_is_the_local_proxy() -> None:
    named, _ = await seen(None, "192.0.2.66, 203.0.113.9")
    assert named == ("203.0.113.9", 0)


async def test_an_address_on_the_socket_is_one_word() -> None:
    _, shown = await seen(None, "a b\tc")
    assert shown == "a_b_c"
