"""Listening addresses, and the sockets that are opened for them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.server import listen as listening
from relay.server.listen import (
    ANY_PORT_TRIES,
    MAX_UNIX_PATH_BYTES,
    ListenAddress,
    ListenError,
    bound_address,
    close_listeners,
    open_listeners,
    parse_listen,
)

BACKLOG = 16
TRIES = 5


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    """Return a list of listeners, and close them after the test."""
    listeners: list[socket.socket] = []
    yield listeners
    close_listeners(listeners)


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("[::]:8080", ListenAddress("::", 8080), "[::]:8080"),
        (":8080", ListenAddress("", 8080), "[::]:8080"),
        ("127.0.0.1:80", ListenAddress("127.0.0.1", 80), "127.0.0.1:80"),
        ("[::1]:0", ListenAddress("::1", 0), "[::1]:0"),
        ("localhost:8080", ListenAddress("localhost", 8080), "localhost:8080"),
        (" 0.0.0.0:1 ", ListenAddress("0.0.0.0", 1), "0.0.0.0:1"),
        ("/run/rmb.sock", ListenAddress(path="/run/rmb.sock"), "unix:/run/rmb.sock"),
        ("unix:/run/rmb.sock", ListenAddress(path="/run/rmb.sock"), "unix:/run/rmb.sock"),
        ("unix:///run/rmb.sock", ListenAddress(path="/run/rmb.sock"), "unix:/run/rmb.sock"),
        ("unix:rmb.sock", ListenAddress(path="rmb.sock"), "unix:rmb.sock"),
    ],
)
def test_forms_of_an_address(text: str, address: ListenAddress, shown: str) -> None:
    assert parse_listen(text) == address
    assert str(address) == shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("8080", "has no port"),
        ("", "has no port"),
        ("host:", "must be a number"),
        ("host:http", "must be a number"),
        ("host:65536", "from 0 to 65535"),
        ("host:-1", "must be a number"),
        ("host:٣", "must be a number"),
        ("a..b:80", "the host is invalid"),
        ("x" * 64 + ":80", "the host is invalid"),
        ("::1:8080", "stands in brackets, [::1]:8080"),
        ("unix:", "names no socket path"),
        ("/" + "x" * MAX_UNIX_PATH_BYTES, "101 bytes; the bound is 100"),
    ],
)
def test_what_is_no_address(text: str, reason: str) -> None:
    with pytest.raises(ListenError, match=reason.replace("[", r"\[")):
        parse_listen(text)


def test_everywhere_is_one_socket_for_both_families(opened: list[socket.socket]) -> None:
    opened += open_listeners(parse_listen("[::]:0"), BACKLOG)
    port = bound_address(opened[0]).port
    for host in ("127.0.0.1", "::1"):
        socket.create_connection((host, port), timeout=5).close()


@pytest.mark.parametrize(("host", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_one_address_is_only_that_address(
    opened: list[socket.socket], host: str, other: str
) -> None:
    for _ in range(TRIES):  # another process may happen to use that port of the other address
        opened += open_listeners(ListenAddress(host, 0), BACKLOG)
        port = bound_address(opened[-1]).port
        with socket.socket(socket.AF_INET6 if ":" in other else socket.AF_INET) as guard:
            try:
                guard.bind((other, port))  # without listening: keeps others from listening there
            except OSError:
                continue
            socket.create_connection((host, port), timeout=5).close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((other, port), timeout=5)
            return
    pytest.fail(f"the other address is taken as well, {TRIES} times")


def test_a_name_is_all_of_its_addresses_at_one_port(opened: list[socket.socket]) -> None:
    opened += open_listeners(parse_listen("localhost:0"), BACKLOG)
    assert len({bound_address(each).port for each in opened}) == 1


@pytest.mark.parametrize("taken", [ANY_PORT_TRIES - 1, ANY_PORT_TRIES])
def test_any_port_is_one_that_is_free_at_all_addresses_of_a_name(
    opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """Another port is tried if the first address's port is in use at the second address."""
    places = [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET, ("127.0.0.2", 0))]
    found = [(family, socket.SOCK_STREAM, 0, "", place) for family, place in places]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    listen = listening._listen_tcp
    guards: list[socket.socket] = []

    def with_the_second_taken(family: int, place: tuple[Any, ...], *rest: Any, **more: Any) -> Any:
        if place[0] == "127.0.0.2" and len(guards) < taken:
            guards.append(socket.create_server((place[0], place[1])))
        return listen(family, place, *rest, **more)

    monkeypatch.setattr(listening, "_listen_tcp", with_the_second_taken)
    try:
        if taken < ANY_PORT_TRIES:
            opened += open_listeners(ListenAddress("name", 0), BACKLOG)
            assert len({bound_address(each).port for each in opened}) == 1
        else:
            with pytest.raises(ListenError, match="in use by another process"):
                open_listeners(ListenAddress("name", 0), BACKLOG)
    finally:
        for guard in guards:
            guard.close()
    assert len(guards) == taken


def test_a_port_in_use_is_told(opened: list[socket.socket]) -> None:
    opened += open_listeners(parse_listen("127.0.0.1:0"), BACKLOG)
    taken = bound_address(opened[0])
    with pytest.raises(ListenError, match="the port is in use by another process"):
        open_listeners(taken, BACKLOG)


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(ListenError, match="does not have that address"):
        open_listeners(ListenAddress("192.0.2.1", 0), BACKLOG)


def test_a_name_nobody_knows_is_told() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on nowhere\.invalid:1"):
        open_listeners(ListenAddress("nowhere.invalid", 1), BACKLOG)


def test_a_unix_socket_comes_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listeners = open_listeners(ListenAddress(path=str(path)), BACKLOG)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    with pytest.raises(ListenError, match="another process is listening there"):
        open_listeners(ListenAddress(path=str(path)), BACKLOG)
    assert bound_address(listeners[0]) == ListenAddress(path=str(path))
    close_listeners(listeners)
    assert not path.exists()


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    close_listeners(open_listeners(ListenAddress(path=str(path)), BACKLOG))


def test_a_file_of_another_kind_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("content")
    with pytest.raises(ListenError, match="a file of another kind"):
        open_listeners(ListenAddress(path=str(path)), BACKLOG)
    assert path.read_text() == "content"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="No such file or directory"):
        open_listeners(ListenAddress(path=str(tmp_path / "no" / "s")), BACKLOG)
