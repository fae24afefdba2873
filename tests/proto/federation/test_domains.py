"""Tests of domains: `host` or `host:port`, and nothing that could change the request."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.federation.domains import (
    DomainError,
    Place,
    canonical,
    fold,
    is_address,
    is_name,
    nearest,
    parse,
    reachable,
)

LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
PORTS = st.none() | st.integers(1, 65535)
ADDRESSES = st.ip_addresses()
WIDE_LOOPBACK = "１２７.0.0.1"  # noqa: RUF001


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


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("localhost:8080", ["LOCALHOST:8080", "localhost:8080.", "localhost.:8080"]),
        ("127.0.0.1:8080", ["127.1:08080", "0x7f000001:8080", "2130706433:8080"]),
        ("127.0.0.1", ["[::ffff:127.0.0.1]:443", "0177.0.0.01", WIDE_LOOPBACK]),
        ("[::1]:8080", ["[0:0:0:0:0:0:0:1]:8080", "[0::0:1]:8080"]),
        (
            "relay.example",
            ["Relay.EXAMPLE", "relay.example.", "relay.example:443", "relay。example"],
        ),
        ("relay.example:8443", ["RELAY.example.:8443", "relay.example:08443"]),
        ("xn--bcher-kva.example", ["bücher.example", "BÜCHER.Example.", "XN--BCHER-KVA.example"]),
        ("[2001:db8::1]:81", ["[2001:DB8:0:0::1]:81", "[2001:0db8::0001]:81"]),
        ("192.0.2.1", ["192.0.513", "[::ffff:192.0.2.1]", "0xC0.0.2.1", "192.0.2.1."]),
    ],
)
def test_spellings_of_a_relay_are_one_name(name: str, spellings: list[str]) -> None:
    assert {canonical(each) for each in [name, *spellings]} == {name}


@pytest.mark.parametrize(
    "spelling",
    [
        *("localhost:8080", "LOCALHOST:8080", "localhost:8080.", "localhost.:8080", "[::1]:8080"),
        *("127.0.0.1:8080", "[0:0::1]:8080", "127.1:08080", "[::ffff:127.0.0.1]:8080"),
    ],
)
def test_the_own_host_is_one_relay(spelling: str) -> None:
    assert fold(spelling) == "127.0.0.1:8080"
    assert fold(spelling.rpartition(":")[0]) == "127.0.0.1"
    assert fold(f"x{spelling.lower()}") != "127.0.0.1:8080", "localhost is the whole name"


def test_other_hosts_with_localhost_in_their_names_are_others() -> None:
    for name in ("localhost.example", "localhost2", "a.localhost", "127.0.0.2", "[::2]"):
        assert fold(name) == name


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "a..b", ".a", "a..", "a b", " a", "a,b", "a_b", "a/", "wss://a", "a@b"),
        *("h:0", "h:99999", "h:", "h:80:80", ":80", "h:8080..", "[::1", "[::1]80", "[a]", "::1"),
        *("1.2.3.256", "1.2.3.4.5", "08", "a.1", "-a", "a-", "a" * 64, "a." * 130, "[1.2.3.4]"),
        *("=cmd|'/c calc'!A0", "a\0", "a\n", "a／b", "a\ud800", "[fe80::1%eth0]", "a%2eb"),  # noqa: RUF001
    ],
)
def test_what_no_relay_is_called_has_no_canonical_form(text: str) -> None:
    with pytest.raises(DomainError):
        canonical(text)
    assert fold(text) == text and not is_name(text)
    assert reachable(("a", text)) == ("a",)


@given(st.text(max_size=40) | st.text("a.:[]0x1fAＡ。-", max_size=24))  # noqa: RUF001
def test_the_canonical_form_is_its_own_and_can_be_requested(text: str) -> None:
    try:
        name = canonical(text)
    except DomainError:
        return
    assert canonical(name) == name
    assert fold(fold(text)) == fold(name) == fold(text)
    host, port = parse(name)
    assert name.isascii() and name == name.lower() and host and port != 443


@given(NAMES, PORTS, st.data())
def test_case_dot_and_default_port_make_no_difference(
    host: str, port: int | None, data: st.DataObject
) -> None:
    name = host if port in (None, 443) else f"{host}:{port}"
    spelled = "".join(data.draw(st.sampled_from((each, each.upper()))) for each in host)
    spelled += data.draw(st.sampled_from(("", ".")))
    if port is not None or data.draw(st.booleans()):
        spelled += f":{port or 443}" + data.draw(st.sampled_from(("", ".")))
    assert canonical(spelled) == name


@given(ADDRESSES, st.data())
def test_spellings_of_an_address_are_one_name(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, data: st.DataObject
) -> None:
    number = int(address)
    if address.version == 6:
        spellings = [address.compressed, address.exploded, address.exploded.upper()]
        spellings = [f"[{each}]" for each in spellings]
    else:
        spellings = [str(address), str(number), hex(number), f"0{number:o}", f"[::ffff:{address}]"]
        spellings.append(f"{number >> 24}.{number & 0xFFFFFF}")
    assert len({canonical(each) for each in spellings}) == 1


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("wss://relay.example.com", ("relay.example.com",)),
        ("https://user@relay.example.com:8443/path?x", ("relay.example.com:8443",)),
        ("relay.example.com/", ("relay.example.com",)),
        ("ws:/127.0.0.1:9100", ("127.0.0.1:9100",)),
        ("a, b;c", ("a", "b", "c")),
        (".a.example..", ("a.example",)),
        ("a..b", ()),
        (".", ()),
        ("h:99999", ()),
        ("=cmd|'/c calc'!A0", ()),
    ],
)
def test_the_nearest_names_are_told(text: str, meant: tuple[str, ...]) -> None:
    assert nearest(text) == meant


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "0x7f.1.", "::1", WIDE_LOOPBACK, "1.2.3.999"]
)
def test_addresses_are_no_names(host: str) -> None:
    assert is_address(host)
    assert not is_address("relay1.example.")
