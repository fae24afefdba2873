"""Tests of `redispipe.address`: the meaning of a URL, and refusal of those that would mislead."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.connection import parse_url

from redispipe import address
from redispipe.address import RedisAddress, RedisAddressError
from redispipe.pipe import RedisPipe
from tests.support.redis_servers import RedisServer

NAMED = ("CLIENT", "SETNAME", "x")


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("redis://host", ()),
        ("redis://:word@host", ("AUTH", "word")),
        ("redis://rmb:word@host", ("AUTH", "rmb", "word")),
        ("redis://rmb@host", ("AUTH", "rmb", "")),
        ("redis://rmb:w%23%3F%40%2F@host", ("AUTH", "rmb", "w#?@/")),
        ("unix:///run/redis.sock?username=rmb&password=w%23d", ("AUTH", "rmb", "w#d")),
        ("unix://:word@/run/redis.sock", ("AUTH", "word")),
        ("rediss://host?ssl_cert_reqs=required&password=word", ("AUTH", "word")),
        ("redis://:word@host?username=rmb&password=other&password=third", ("AUTH", "rmb", "word")),
    ],
)
def test_who_logs_in_is_whom_redis_py_means(url: str, login: tuple[str, ...]) -> None:
    """The parser logs in as the same user as redis-py.

    Checks at the start, Celery and the cache use redis-py with the same URL.
    """
    assert RedisAddress.parse(url).opening("x") == [login, NAMED] if login else [NAMED]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://user#1:word@host", "%23"),
        ("redis://:#secret@host", "%23"),
        ("redis://:12?3@host", "%3F"),
        ("unix://run/redis.sock", "unix:///path"),
        ("rediss://host?ssl_cert_reqs=none", "ssl_cert_reqs cannot be none"),
        ("rediss://host?ssl_keyfile=/key", "ssl_keyfile"),
        ("redis://host?port=6380", "port"),
        ("redis://host/abc", "database number"),
        ("redis://host/-1", "database number"),
        ("redis://host/0/1", "database number"),
        ("redis://host?db=1_0", "database number"),
        ("redis://:secret/9@host", "%2F"),
        ("redis://:12/secret@host/1", "%2F"),
        ("redis://me:secret@host:secret", "invalid port"),
        ("unix://:secret/a@/run/redis.sock", "%2F"),
        ("redis:///1", "no host"),
        ("redis://se cret", "invalid host name"),
        ("http://host", "must begin with redis://"),
    ],
)
def test_what_would_lead_elsewhere_is_refused(url: str, why: str) -> None:
    with pytest.raises(RedisAddressError, match=why) as refused:
        RedisAddress.parse(url)
    assert "secret" not in str(refused.value)


WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)


@given(
    place=st.sampled_from(["redis://host:%d", "rediss://[::1]:%d", "unix:///run/a b@c.sock?x=%d"]),
    port=st.integers(1, 65535),
    user=WORDS,
    password=WORDS,
    database=st.integers(0, 15),
)
def test_every_library_reads_what_the_parser_read(
    place: str, port: int, user: str, password: str, database: int
) -> None:
    """redis-py reads the URL of `url` as the parser does.

    redis-py, Channels and Celery are given that form, never the operator's own.
    """
    meant = RedisAddress.parse(place % port)._replace(
        user=user, password=password, database=database
    )
    assert RedisAddress.parse(meant.url) == meant
    read = parse_url(meant.url)
    where = (read.get("host", ""), read.get("port", 0), read.get("path", ""))
    assert where == (meant.host, meant.port, meant.path)
    assert (read.get("username", ""), read.get("password", "")) == (user, password)
    assert int(read.get("db", 0)) == database
    assert "@" not in meant.shown_url.partition("/run/")[0]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:word@host:1/2?x=word", "redis://host:1/2"),
        ("rediss://:word@host", "rediss://host:6379"),
        ("unix:///run/redis.sock?password=word", "unix:///run/redis.sock"),
    ],
)
def test_urls_are_shown_without_their_secrets(url: str, shown: str) -> None:
    assert RedisAddress.parse(url).shown_url == shown


def test_a_file_of_authorities_is_kept() -> None:
    assert RedisAddress.parse("rediss://host?ssl_ca_certs=/etc/ca.pem").ca_file == "/etc/ca.pem"


async def test_an_address_that_swallows_what_is_sent_is_passed_over(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that does not answer is skipped.

    A host name may resolve to an IPv6 address without a route, before the one that works.
    """
    monkeypatch.setattr(address, "ADDRESS_S", 0.2)
    with socket.socket() as full, socket.socket() as one, socket.socket() as two:
        full.bind(("127.0.0.2", 0))
        full.listen(0)
        for filling in (one, two):
            filling.setblocking(False)
            filling.connect_ex(full.getsockname())
        places = [full.getsockname(), ("127.0.0.1", valkey.port)]

        async def two_addresses(*_: object, **__: object) -> list[object]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "getaddrinfo", two_addresses)
        connect = RedisAddress.parse("redis://redis.example").connect
        transport = await asyncio.wait_for(connect(asyncio.Protocol), 10)
        assert transport.get_extra_info("peername") == places[1]
        transport.close()


@pytest.mark.parametrize("place", ["127.0.0.1:1", "unix:/nowhere/redis.sock"])
async def test_where_nobody_answers_is_told(place: str) -> None:
    url = place.replace("unix:", "unix://") if "unix" in place else f"redis://{place}"
    with pytest.raises(ConnectionError, match=place):
        await RedisAddress.parse(url).connect(asyncio.Protocol)


async def test_a_user_of_the_query_logs_in(valkey: RedisServer) -> None:
    valkey.run("ACL", "SETUSER", "rmb", "on", ">word", "~*", "&*", "+@all")
    pipe = RedisPipe.to(f"{valkey.unix_url}?username=rmb&password=word", "test")
    pipe.start()
    await pipe.wait_usable()
    assert await pipe.call("ACL", "WHOAMI") == b"rmb"
    await pipe.close()
