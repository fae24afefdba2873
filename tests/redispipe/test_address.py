"""`redispipe.address`: what a URL means, and what is refused before it leads elsewhere."""

from __future__ import annotations

import pytest

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
    ],
)
def test_who_logs_in_is_whom_redis_py_means(url: str, login: tuple[str, ...]) -> None:
    """Checks at the start, Celery and the cache use redis-py with the same URL."""
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
        ("redis://host/abc", "database number"),
        ("http://host", "scheme"),
    ],
)
def test_what_would_lead_elsewhere_is_refused(url: str, why: str) -> None:
    with pytest.raises(RedisAddressError, match=why) as refused:
        RedisAddress.parse(url)
    assert "secret" not in str(refused.value)


def test_a_file_of_authorities_is_kept() -> None:
    assert RedisAddress.parse("rediss://host?ssl_ca_certs=/etc/ca.pem").ca_file == "/etc/ca.pem"


async def test_a_user_of_the_query_logs_in(valkey: RedisServer) -> None:
    valkey.run("ACL", "SETUSER", "rmb", "on", ">word", "~*", "&*", "+@all")
    pipe = RedisPipe.to(f"{valkey.unix_url}?username=rmb&password=word", "test")
    pipe.start()
    await pipe.wait_usable()
    assert await pipe.call("ACL", "WHOAMI") == b"rmb"
    await pipe.close()
