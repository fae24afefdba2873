"""Domains: `host` or `host:port`, and nothing that could become another request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.federation.domains import DomainError, Place, parse


@pytest.mark.parametrize(
    ("domain", "place"),
    [
        ("relay.example", Place("relay.example", None)),
        ("r1.relay.example:8443", Place("r1.relay.example", 8443)),
        ("a", Place("a", None)),
        ("127.0.0.1:80", Place("127.0.0.1", 80)),
        ("[::1]:8080", Place("::1", 8080)),
        ("[2001:db8::1]", Place("2001:db8::1", None)),
    ],
)
def test_domains_are_read(domain: str, place: Place) -> None:
    assert parse(domain) == place


@pytest.mark.parametrize(
    "domain",
    [
        "",
        " relay.example",
        "relay.example ",
        "relay.example/path",
        "relay.example?query",
        "relay.example#part",
        "user@relay.example",
        "https://relay.example",
        "ws:/127.0.0.1:9100",
        "relay.example:",
        "relay.example:0",
        "relay.example:65536",
        "relay.example:80:80",
        "relay..example",
        ".relay.example",
        "relay.example.",
        "-relay.example",
        "::1",
        "[::1",
        "[relay.example]",
        "relay.example\r\nX-Header: y",
        "relay\\example",
        "relay.exämple",
        "relay.example:\u0663",  # a digit of another script
        "１２７.0.0.1",  # noqa: RUF001 - full width digits become an address in some libraries
        "a" * 254,
        "%31.example",
    ],
)
def test_everything_else_is_refused(domain: str) -> None:
    with pytest.raises(DomainError):
        parse(domain)


@given(st.text(max_size=40))
def test_what_is_read_can_be_written_again(text: str) -> None:
    try:
        host, port = parse(text)
    except DomainError:
        return
    assert text.isascii() and not set(text) & set("/?#@\\% \r\n")
    shown = f"[{host}]" if ":" in host else host
    assert text in (shown, f"{shown}:{port}") or text.endswith(str(port).zfill(5))
