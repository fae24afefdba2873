"""Listening addresses: their text form, and the sockets the parent opens for them.

The supervisor opens every listener once and passes the file descriptors to its workers. A port in
use is therefore reported before anything else has started, and the listener stays open when a
worker dies or is replaced: connections wait in the backlog until another worker accepts them.

    [::]:8080        every address, IPv4 and IPv6 through one dual-stack socket
    0.0.0.0:8080     every IPv4 address
    :8080            the same as [::]:8080
    localhost:8080   every address that the host name resolves to
    /run/rmb.sock    a Unix socket, also written unix:/run/rmb.sock
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_UNIX_PATH_BYTES: Final = 100
"""Maximum length of a path. The kernel's bound is 108 bytes on Linux and 104 on macOS, including
the final zero."""

MAX_PORT: Final = 65535

ANY_PORT_TRIES: Final = 5
"""Attempts for port 0: the port that one address of a host name gets may be in use at another."""

_STALE_PROBE_TIMEOUT_S: Final = 1.0


OWN_LISTENERS: Final = ("sbd", "mux")
"""Protocols that may have separate listeners, by the sections of their settings."""


class ListenError(Exception):
    """An address that is invalid or cannot be listened on; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen: `path` for a Unix socket, else `host` (empty: every address) and `port`."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def public(self) -> bool:
        """Whether other machines may reach it."""
        if self.path or self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host or '[::]'}:{self.port}"


def parse_listen(text: str) -> ListenAddress:
    """Read one listening address.

    Raises:
        ListenError: The text has none of the forms shown at the top of this module.
    """
    text = text.strip()
    if text.startswith(("unix:", "/")):
        return ListenAddress(path=_unix_path(text))
    host, colon, port_text = text.rpartition(":")
    if not colon:
        raise ListenError(f"listening address {text!r} has no port (write for example [::]:8080)")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ListenError(
            f"listening address {text!r}: an IPv6 address stands in brackets, [{host}]:{port_text}"
        )
    try:
        host.encode("idna")  # as its look-up does
    except ValueError:
        raise ListenError(
            f"listening address {text!r}: the host is invalid; use host:port, [IPv6]:port or "
            "unix:/path"
        ) from None
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > MAX_PORT:
        raise ListenError(
            f"listening address {text!r}: the port must be a number from 0 to {MAX_PORT}"
        )
    return ListenAddress(host=host, port=int(port_text))


def _unix_path(text: str) -> str:
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    size_bytes = len(os.fsencode(path))
    if not path:
        raise ListenError(f"listening address {text!r} names no socket path")
    if size_bytes > MAX_UNIX_PATH_BYTES:
        raise ListenError(
            f"socket path {path!r} has {size_bytes} bytes; the bound is {MAX_UNIX_PATH_BYTES}"
        )
    return path


def open_listeners(address: ListenAddress, backlog: int) -> list[socket.socket]:
    """Open, bind and listen; a host name with several addresses yields several sockets.

    Raises:
        ListenError: The address is in use, is not one of this machine's, is not permitted, or does
            not resolve.
    """
    if address.path:
        return [_listen_unix(address, backlog)]
    if address.host in ("", "::"):
        return [_listen_everywhere(address, backlog)]
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error
    places = list(dict.fromkeys((family, place) for family, _, _, _, place in found))
    tries_left = 1 if address.port else ANY_PORT_TRIES
    while True:
        try:
            return _listen_at(places, address, backlog)
        except ListenError:
            tries_left -= 1
            if not tries_left:
                raise


def _listen_at(
    places: Sequence[tuple[socket.AddressFamily, tuple[object, ...]]],
    address: ListenAddress,
    backlog: int,
) -> list[socket.socket]:
    """Listen at all addresses of one host name, at one port."""
    listeners: list[socket.socket] = []
    port = address.port
    try:
        for family, place in places:
            # Port 0 means "any": the second address of the name gets the port of the first.
            where = (place[0], port, *place[2:])
            listeners.append(_listen_tcp(family, where, address, backlog, dual_stack=False))
            port = listeners[0].getsockname()[1]
    except ListenError:
        close_listeners(listeners)
        raise
    return listeners


def bound_address(listener: socket.socket) -> ListenAddress:
    """Return the address where a socket actually listens, with the port chosen for 0."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return ListenAddress(path=name)
    return ListenAddress(host=name[0], port=name[1])


def close_listeners(listeners: list[socket.socket]) -> None:
    """Close the sockets and remove the files of Unix ones."""
    for listener in listeners:
        path = listener.getsockname() if listener.family == socket.AF_UNIX else ""
        listener.close()
        if path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _listen_everywhere(address: ListenAddress, backlog: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        place = ("::", address.port, 0, 0)
        return _listen_tcp(socket.AF_INET6, place, address, backlog, dual_stack=True)
    # A machine without IPv6 has IPv4 addresses only.
    return _listen_tcp(
        socket.AF_INET, ("0.0.0.0", address.port), address, backlog, dual_stack=False
    )


def _listen_tcp(
    family: int,
    place: tuple[object, ...],
    address: ListenAddress,
    backlog: int,
    *,
    dual_stack: bool,
) -> socket.socket:
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ListenError(_explain(address, error)) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these two from their listener at no cost.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        listener.bind(place)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise ListenError(_explain(address, error)) from error
    listener.setblocking(False)
    return listener


def _listen_unix(address: ListenAddress, backlog: int) -> socket.socket:
    _remove_stale_socket(address)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address.path)
        # The folder decides which users may connect: a proxy usually runs as another user.
        os.chmod(address.path, 0o666)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise ListenError(_explain(address, error)) from error
    listener.setblocking(False)
    return listener


def _remove_stale_socket(address: ListenAddress) -> None:
    """Remove a socket that a killed process left behind, but nothing else and nothing in use."""
    try:
        mode = os.stat(address.path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ListenError(_explain(address, error)) from error
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"cannot listen on {address}: there is a file of another kind")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_STALE_PROBE_TIMEOUT_S)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
            return
        except OSError as error:
            raise ListenError(_explain(address, error)) from error
    raise ListenError(f"cannot listen on {address}: another process is listening there")


def _explain(address: ListenAddress, error: OSError) -> str:
    where = f"cannot listen on {address}"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: the port is in use by another process"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this machine does not have that address"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: not allowed (ports below 1024 need a privilege)"
    return f"{where}: {error.strerror or error}"
