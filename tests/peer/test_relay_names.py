"""Addresses of websockets name one relay, whatever the scheme, case and path."""

from __future__ import annotations

from peer.relay_names import distinct, name_of


def test_addresses_of_one_relay_have_one_name() -> None:
    spellings = ("ws://h", "ws://H/", "WS://h.:80/x", "wss://h", "wss://h:443/?q", "ws://h:80")
    assert {name_of(each) for each in spellings} == {"h"}
    assert name_of("ws://h:8080") == "h:8080"
    assert name_of("ws://[::1]:8080/") == name_of("ws://LOCALHOST:8080") == "127.0.0.1:8080"
    assert name_of("ws://my_relay:8080") == "my_relay:8080"  # no twin can list it


def test_the_first_address_of_each_relay_is_used() -> None:
    urls = ("wss://A.example", "wss://b.example", "wss://a.example./x", "wss://b.example:444")
    assert distinct(urls) == ("wss://A.example", "wss://b.example", "wss://b.example:444")
