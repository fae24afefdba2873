"""SimRedis answers like real servers: equal input gives equal replies.

What may differ is masked by name (times, ids of clients, memory figures). Everything else,
including error texts, is compared with Redis 6.2 and with the bundled Valkey.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.redis_pair import Argv, Pair
from tests.support import redis_servers
from tests.support.redis_servers import RedisServer

LUA = Path(__file__).parents[2] / "relay" / "sessions" / "lua"
QUEUES = LUA.parents[1] / "queues" / "lua"


def test_streams_keep_ids_ranges_and_their_last_id(pair: Pair) -> None:
    for command in (
        ("XADD", "s", "5-1", "_", "a"),
        ("XADD", "s", "5-1", "_", "b"),
        ("XADD", "s", "4-9", "_", "b"),
        ("XADD", "s", "0-0", "_", "b"),
        ("XADD", "s", "7", "_", "b"),
        ("XADD", "s", "7-2", "_", "c", "x", "d"),
        ("XADD", "s", "x-2", "_", "c"),
        ("XADD", "s", "9-2", "_"),
        ("XADD", "s", "9-2", "_", "c", "x"),
        ("XADD", "none", "NOMKSTREAM", "9-2", "_", "c"),
        ("XLEN", "s"),
        ("XRANGE", "s", "-", "+"),
        ("XRANGE", "s", "(5-1", "+"),
        ("XRANGE", "s", "(5-1", "+", "COUNT", "1"),
        ("XRANGE", "s", "5", "7"),
        ("XRANGE", "s", "5-2", "(7-2"),
        ("XRANGE", "s", "(5-1", "(7-0"),
        ("XRANGE", "s", "-", "+", "COUNT", "0"),
        ("XRANGE", "s", "-", "+", "COUNT", "-3"),
        ("XRANGE", "s", "-", "+", "COUNT", "x"),
        ("XRANGE", "s", "y", "+"),
        ("XRANGE", "none", "-", "+"),
        ("XDEL", "s", "5-1", "5-1", "6-0"),
        ("XDEL", "none", "5-1"),
        ("XDEL", "s", "7-0", "7-2"),
        ("XLEN", "s"),
        ("EXISTS", "s"),
        ("XRANGE", "s", "-", "+"),
        ("XADD", "s", "7-2", "_", "older than what was deleted"),
        ("XADD", "s", "8-0", "_", "e"),
        ("XTRIM", "s", "MINID", "8-0"),
        ("XADD", "s", "8-1", "_", "f"),
        ("XADD", "s", "9-1", "_", "g"),
        ("XTRIM", "s", "MINID", "8-1"),
        ("XTRIM", "s", "MAXLEN", "1"),
        ("XTRIM", "s", "MAXLEN", "=", "0"),
        ("XTRIM", "s", "MAXLEN", "-1"),
        ("XTRIM", "none", "MINID", "5"),
        ("XADD", "s", "MAXLEN", "1", "10-0", "_", "h"),
        ("XADD", "s", "MAXLEN", "1", "11-0", "_", "i"),
        ("XADD", "s", "MINID", "=", "12", "12-0", "_", "j"),
        ("XRANGE", "s", "-", "+"),
        ("TYPE", "s"),
    ):
        pair.ask(*command)


def test_a_given_id_is_the_servers_time_and_never_goes_back(pair: Pair) -> None:
    model, real = pair.ask_masked("XADD", "s", "*", "_", "a")
    assert abs(int(model.split(b"-")[0]) - int(real.split(b"-")[0])) < 1_000
    far_away = 2**62
    pair.ask("XADD", "s", f"{far_away}-7", "_", "b")
    assert pair.ask("XADD", "s", "*", "_", "c") == b"%d-8" % far_away


def test_strings_hashes_sets_and_expiry(pair: Pair) -> None:
    for command in (
        ("SET", "k", "5"),
        ("INCRBY", "k", "3"),
        ("INCRBY", "k", "-1"),
        ("INCRBY", "k", "x"),
        ("INCRBY", "k", "9223372036854775807"),
        ("SET", "k", "v", "NX"),
        ("SET", "new", "v", "XX"),
        ("SET", "k", "v", "EX", "100"),
        ("TTL", "k"),
        ("SET", "k", "w"),
        ("TTL", "k"),
        ("EXPIRE", "k", "50"),
        ("TTL", "k"),
        ("EXPIRE", "k", "0"),
        ("GET", "k"),
        ("EXPIRE", "k", "10"),
        ("TTL", "k"),
        ("SET", "k", "v", "EX", "0"),
        ("SET", "k", "v", "EX"),
        ("SET", "k", "v", "NX", "XX"),
        ("INCRBY", "other", "2"),
        ("INCR", "other"),
        ("SCAN", "0", "MATCH", "oth*", "COUNT", "500"),
        ("HSET", "h", "a", "1", "b", "2"),
        ("HSET", "h", "a", "3"),
        ("HSET", "h", "a"),
        ("HSET", "h", "a", "1", "b"),
        ("HGET", "h", "a"),
        ("HGET", "h", "zz"),
        ("HGET", "none", "a"),
        ("HGETALL", "h"),
        ("HMGET", "h", "a", "zz"),
        ("HINCRBY", "h", "a", "4"),
        ("HINCRBY", "h", "new", "-4"),
        ("HINCRBY", "h", "a", "x"),
        ("HSET", "h", "text", "x"),
        ("HINCRBY", "h", "text", "1"),
        ("HDEL", "h", "a", "zz"),
        ("HDEL", "h", "b", "new", "text"),
        ("EXISTS", "h"),
        ("HGETALL", "h"),
        ("HDEL", "h", "a"),
        ("SADD", "set", "x", "y", "x"),
        ("SADD", "set", "x"),
        ("SMEMBERS", "set"),
        ("SISMEMBER", "set", "x"),
        ("SREM", "set", "x", "zz"),
        ("SREM", "set", "y"),
        ("EXISTS", "set"),
        ("SMEMBERS", "set"),
        ("DEL", "other", "other", "zz"),
        ("SADD", "set", "x"),
        ("HSET", "h", "a", "1"),
        ("SET", "k", "v"),
        ("GET", "h"),
        ("HGET", "set", "x"),
        ("SADD", "h", "x"),
        ("XADD", "k", "*", "_", "x"),
        ("XLEN", "h"),
        ("HINCRBY", "k", "x", "1"),
        ("INCRBY", "h", "1"),
        ("EXISTS", "k", "h", "zz", "k"),
        ("GET",),
        ("GET", "a", "b"),
        ("PING",),
        ("PING", "hello"),
        ("ECHO", "hello"),
        ("SELECT", "0"),
        ("SELECT", "x"),
        ("SELECT", "99"),
        ("CONFIG", "GET", "maxmemory-policy"),
    ):
        pair.ask(*command)


def test_memory_usage_is_a_size_or_nothing(pair: Pair) -> None:
    pair.ask("MEMORY", "USAGE", "none")
    for n in range(50):
        pair.ask("XADD", "s", f"{n + 1}-0", "_", b"x" * 1_000)
    model, real = pair.ask_masked("MEMORY", "USAGE", "s", "SAMPLES", "5")
    assert 50_000 <= model <= 2 * real and 50_000 <= real <= 2 * model


def test_a_transaction_is_applied_as_a_whole(pair: Pair) -> None:
    pair.ask("EXEC")
    pair.ask("DISCARD")
    pair.ask("MULTI")
    pair.ask("MULTI")
    pair.ask("SET", "k", "1")
    pair.ask("GET", "k")
    pair.ask("GET", "k", on=1)
    pair.ask("INCRBY", "k", "x")  # only this command fails, when it is run
    pair.ask("PUBLISH", "nobody", "x")
    pair.ask("EXEC")
    pair.ask("GET", "k", on=1)


@pytest.mark.parametrize("bad", [("GET",), ("HSET", "k", "a"), ("XADD", "s", "*")])
def test_a_command_refused_while_queueing_aborts_the_transaction(pair: Pair, bad: Argv) -> None:
    pair.ask("MULTI")
    pair.ask("SET", "k", "1")
    pair.ask(*bad)
    pair.ask("SET", "k", "2")
    assert pair.ask("EXEC").startswith("EXECABORT")
    pair.ask("GET", "k")
    pair.ask("MULTI")
    pair.ask("DISCARD")
    pair.ask("SET", "k", "3")


def test_subscribers_get_what_is_published_and_are_counted(pair: Pair) -> None:
    pair.ask("PUBLISH", "c", "nobody hears it", on=1)
    pair.ask("SUBSCRIBE", "c")
    pair.ask("SUBSCRIBE", "d", "c")
    pair.next_reply(on=0)
    pair.ask("PUBSUB", "NUMSUB", "c", "d", "e", on=1)
    pair.ask("PUBLISH", "c", "one", on=1)
    pair.ask("MULTI", on=1)
    pair.ask("PUBLISH", "d", "two", on=1)
    pair.ask("PUBLISH", "c", "three", on=1)
    pair.ask("EXEC", on=1)
    for _ in range(3):
        pair.next_reply(on=0)
    pair.ask("PING")
    pair.ask("PING", "x")
    model, real = pair.ask_masked("GET", "k")
    assert model.startswith("ERR Can't execute 'get'") and real.startswith(
        "ERR Can't execute 'get'"
    )
    pair.ask("UNSUBSCRIBE", "c")
    pair.ask("PUBLISH", "c", "four", on=1)
    pair.ask("UNSUBSCRIBE", "zz")
    pair.ask("UNSUBSCRIBE")
    pair.ask("UNSUBSCRIBE")
    pair.ask("GET", "k")
    pair.ask("PUBSUB", "NUMSUB", "d", on=1)


def test_clients_have_ids_and_can_be_killed_by_them(pair: Pair) -> None:
    ids = [pair.ask_masked("CLIENT", "ID", on=n) for n in (0, 1)]
    for model_or_real in zip(*ids, strict=True):
        assert model_or_real[0] < model_or_real[1], "ids grow"
    pair.ask("CLIENT", "SETNAME", "me")
    pair.ask("CLIENT", "GETNAME")
    pair.ask("CLIENT", "KILL", "ID", "999999")
    model, real = pair[0]
    answers = (
        model.ask("CLIENT", "KILL", "ID", ids[1][0]),
        real.ask("CLIENT", "KILL", "ID", ids[1][1]),
    )
    pair.same(("CLIENT", "KILL"), *answers)
    assert pair[1][0].ended
    assert pair[1][1].socket.recv(100) == b""
    answers = (
        model.ask("CLIENT", "KILL", "ID", ids[0][0]),
        real.ask("CLIENT", "KILL", "ID", ids[0][1]),
    )
    assert pair.same(("CLIENT", "KILL"), *answers) == 0, "it does not kill itself"


def test_info_tells_the_run_id_and_time_is_in_two_parts(pair: Pair) -> None:
    for reply in pair.ask_masked("INFO", "server"):
        lines = dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
        assert len(lines["run_id"]) == 40
    for reply in pair.ask_masked("INFO", "memory"):
        assert b"maxmemory_policy:noeviction" in reply
    model, real = (int(r[0]) * 10**6 + int(r[1]) for r in pair.ask_masked("TIME"))
    assert abs(model - real) < 10**6


def test_full_memory_refuses_what_grows_and_the_whole_transaction(pair: Pair) -> None:
    pair.ask("XADD", "s", "1-1", "_", "a")
    pair.ask("SET", "k", "v")
    pair.ask("HSET", "h", "a", "1")
    pair.ask("CONFIG", "SET", "maxmemory", "1", on=1)
    for command in (
        ("XADD", "s", "2-1", "_", "b"),
        ("SET", "k", "w"),
        ("INCRBY", "n", "1"),
        ("HSET", "h", "a", "2"),
        ("HINCRBY", "h", "a", "2"),
        ("SADD", "set", "x"),
        ("EXPIRE", "k", "100"),
        ("HDEL", "h", "zz"),
        ("PUBLISH", "c", "x"),
        ("XRANGE", "s", "-", "+"),
        ("GET", "k"),
        ("XADD",),
        ("MULTI",),
        ("XDEL", "s", "1-1"),
        ("GET", "k"),
        ("PUBLISH", "c", "x"),
        ("EXEC",),
        ("XLEN", "s"),
        ("MULTI",),
        ("EXEC",),
        ("MULTI",),
        ("XADD", "s", "3-1", "_", "b"),
        ("DISCARD",),
        ("XTRIM", "s", "MAXLEN", "0"),
        ("XDEL", "s", "1-1"),
        ("DEL", "k", "none"),
        ("SREM", "set", "x"),
    ):
        pair.ask(*command)
    pair.ask("CONFIG", "SET", "maxmemory", "0", on=1)
    pair.ask("MULTI")
    pair.ask("XADD", "s", "4-1", "_", "b")
    pair.ask("CONFIG", "SET", "maxmemory", "1", on=1)
    model, real = pair.ask_masked("EXEC")
    assert model.startswith("EXECABORT") and real.startswith("EXECABORT")
    pair.ask("CONFIG", "SET", "maxmemory", "0", on=1)
    pair.ask("XLEN", "s")


def _script(name: str, folder: Path = LUA) -> bytes:
    return (folder / f"{name}.lua").read_bytes()


DIRECTORY = ("relay:sessions", "relay:unused")
FAR_EPOCH = 2**52  # above any clock, so that answers do not depend on the time


@pytest.mark.parametrize("full", [False, True], ids=["memory", "out of memory"])
def test_the_directory_scripts_do_as_described(pair: Pair, full: bool) -> None:
    entry = f"{FAR_EPOCH} boot-a 1700000000 192.0.2.1"
    pair.ask("HSET", "relay:sessions", "7", entry)
    pair.ask("SUBSCRIBE", "wake:7", "wake:7:sid", on=2)
    pair.next_reply(on=2)
    if full:
        pair.ask("CONFIG", "SET", "maxmemory", "1", on=1)
    claim, hold, release = _script("claim"), _script("hold"), _script("release")
    who = ("boot-b", "1700000001", "192.0.2.2:999")

    first, again = ("7", *who[1:]), ("7", "1700000002", "192.0.2.3:9")
    pair.ask("EVAL", claim, 2, *DIRECTORY, who[0], 100, 1000, *first, *again)
    for _ in range(2):
        pair.next_reply(on=2)
    # Equal, lower and higher epochs, and a missing entry.
    pair.ask("EVAL", hold, 2, *DIRECTORY, "7", str(FAR_EPOCH + 1), *who)
    pair.ask("EVAL", hold, 2, *DIRECTORY, "7", str(FAR_EPOCH), *who)
    pair.ask("HGETALL", "relay:sessions")
    pair.ask("EVAL", hold, 2, *DIRECTORY, "7", str(FAR_EPOCH + 9), *who)
    pair.next_reply(on=2)
    pair.ask("EVAL", hold, 2, *DIRECTORY, "7:sid", str(FAR_EPOCH + 2), *who)
    pair.next_reply(on=2)
    pair.ask("HGETALL", "relay:sessions")
    pair.ask("EVAL", release, 1, "relay:sessions", "7", str(FAR_EPOCH))
    pair.next_reply(on=2)
    pair.ask("EVAL", release, 1, "relay:sessions", "7", str(FAR_EPOCH + 9))
    pair.next_reply(on=2)
    pair.ask("EVAL", release, 1, "relay:sessions", "7", str(FAR_EPOCH + 9))
    pair.next_reply(on=2)
    pair.ask("HGETALL", "relay:sessions")
    pair.ask("EXISTS", "relay:unused")
    pair.ask("CONFIG", "SET", "maxmemory", "0", on=1)


def test_a_first_claim_takes_the_servers_time_as_its_epoch(pair: Pair) -> None:
    replies = pair.ask_masked(
        "EVAL", _script("claim"), 2, *DIRECTORY, "b", 100, 1000, "7", "1", "r"
    )
    for epoch, former in replies:
        assert abs(int(epoch) - time.time() * 1e6) < 5e6
        assert former == b""


def test_a_foreign_value_stops_no_claim(valkey: RedisServer) -> None:
    """A foreign value in one twin's record of sessions does not affect claims of other twins."""
    valkey.run("SET", "relay:known:7", "not a hash")
    claims = ("7", "1", "r", "8", "1", "r")
    replies = valkey.run("EVAL", _script("claim"), 2, *DIRECTORY, "b", 100, 1000, *claims)
    assert len(replies) == 4
    assert valkey.run("HEXISTS", "relay:known:8", "8")
    assert valkey.run("GET", "relay:known:7") == b"not a hash"


@pytest.mark.parametrize("many", [1, 2, 3, 4])
def test_the_fullest_queues_are_named(pair: Pair, many: int) -> None:
    streams = [f"stream:{number}" for number in range(4)]
    for length, stream in enumerate(streams):
        for entry in range(length):
            pair.ask("XADD", stream, f"1-{entry + 1}", "_", "x")
    fullest = _script("fullest")
    model, real = pair.ask_masked("EVAL", fullest, 4, *streams, str(many), str(2**40))
    for reply in (model, real):  # the size of a queue differs between servers
        assert [reply[0], *reply[1::3]] == [6, *(name.encode() for name in streams[many:])]
        assert reply[2::3] == list(range(many, 4))
        assert all(size_bytes > 0 for size_bytes in reply[3::3])
    model, real = pair.ask_masked("EVAL", fullest, 4, *streams, "9", "1")
    assert model[1::3] == real[1::3] == [b"stream:1", b"stream:2", b"stream:3"]


def test_queues_get_their_time_to_live(pair: Pair) -> None:
    """Queues without a time to live get one, and held queues whose time is half over a new one.

    Empty queues that are not held are removed.
    """
    left = {"stream:1": None, "stream:2": 40, "stream:3": 40, "stream:4": 60, "stream:5": None}
    for stream, seconds in left.items():
        pair.ask("XADD", stream, "1-1", "_", "x")
        if seconds is not None:
            pair.ask("EXPIRE", stream, str(seconds))
    pair.ask("HSET", "relay:sessions", "2", "an entry", "4", "an entry", "5", "an entry")
    pair.ask("HSET", "relay:sessions", "8", "an entry")
    for stream in ("stream:7", "stream:8"):
        pair.ask("XADD", stream, "1-1", "_", "x")
        pair.ask("XDEL", stream, "1-1")
    names = [*left, "stream:6", "stream:7", "stream:8"]
    texts = [name.removeprefix("stream:") for name in names]
    pair.ask("EVAL", _script("outlive"), 9, "relay:sessions", *names, "100", *texts)
    for name, seconds in zip(names, (100, 100, 40, 60, 100, -2, -2, 100), strict=True):
        for found in pair.ask_masked("TTL", name):
            assert 0 <= seconds - found <= 1


@pytest.mark.parametrize("full", [False, True], ids=["memory", "out of memory"])
def test_mail_of_a_guest_leaves(pair: Pair, full: bool) -> None:
    for number in range(1, 5):
        pair.ask("XADD", "stream:1", f"1-{number}", "x", "y", "_", f"mail {number}")
    pair.ask("XADD", "out", "9999999999999-7", "_", "before")  # so that new ids are known
    pair.ask("XDEL", "stream:1", "1-3")
    mail = [
        *("1-1", "7:sid", "7", "16777217"),
        *("1-2", "", "0", "0"),
        *("1-3", "7", "7", "16777217"),
        *("1-4", "7", "7", "16777217"),
    ]
    places = ("stream:1", "relay:sessions", "out", "held", "lease")
    if full:
        pair.ask("CONFIG", "SET", "maxmemory", "1", on=1)
    pair.ask("EVAL", _script("leave"), 5, *places, "1", "there.example", *mail)
    pair.ask("EVAL", _script("leave"), 5, *places, "1", "there.example", *mail)
    pair.ask("CONFIG", "SET", "maxmemory", "0", on=1)
    for command in (("XRANGE", "out", "-", "+"), ("XLEN", "stream:1"), ("HGETALL", "held")):
        pair.ask(*command)
    pair.ask("HSET", "relay:sessions", "1", "an entry")
    pair.ask("XADD", "stream:1", "2-1", "_", "for the session")
    args = ("2-1", "7", "7", "16777217")
    pair.ask("EVAL", _script("leave"), 5, *places, "1", "there.example", *args)
    pair.ask("XLEN", "stream:1")


def test_messages_of_other_relays_are_stored_once(pair: Pair) -> None:
    def take(*messages: tuple[str, str, str]) -> None:
        streams = [stream for stream, _, _ in messages]
        rest = [part for _, mark, payload in messages for part in (mark, payload)]
        script, names = _script("take", QUEUES), ("taken:", *streams)
        pair.ask("EVAL", script, len(names), *names, 300, 3, *rest)

    for stream in ("s", "t"):
        pair.ask("XADD", stream, "9999999999999-7", "_", "before")  # so that new ids are known
    pair.ask("SET", "no stream", "x")
    take(("s", "one", "1"), ("t", "two", "2"), ("no stream", "three", "3"))
    take(("s", "two", "2"), ("s", "four", "4"), ("t", "three", "3"))
    take(("s", "", "not remembered"), ("s", "", "so it is stored again"))
    pair.ask("SMISMEMBER", "none", "one")
    pair.ask("SADD", "some", "one", "two")
    pair.ask("SMISMEMBER", "some", "one", "three", "two")
    for stream in ("s", "t"):
        pair.ask("XRANGE", stream, "-", "+")


KEYS = st.sampled_from(["a", "b", "stream:1"])
VALUES = st.sampled_from(["", "x", "1", "-7", "00", "y" * 300])
FIELDS = st.sampled_from(["f", "g"])
IDS = st.builds("{}-{}".format, st.integers(0, 4), st.integers(0, 3))
BOUNDS = st.one_of(IDS, IDS.map("({}".format), st.sampled_from(["-", "+", "2", "(3", "zz"]))
COUNTS = st.integers(-1, 3).map(str)
COMMANDS = st.one_of(
    st.tuples(st.just("XADD"), KEYS, IDS, st.just("_"), VALUES),
    st.tuples(st.just("XDEL"), KEYS, IDS, IDS),
    st.tuples(st.just("XRANGE"), KEYS, BOUNDS, BOUNDS),
    st.tuples(st.just("XRANGE"), KEYS, BOUNDS, BOUNDS, st.just("COUNT"), COUNTS),
    st.tuples(st.just("XTRIM"), KEYS, st.just("MINID"), IDS),
    st.tuples(st.just("XTRIM"), KEYS, st.just("MAXLEN"), COUNTS),
    st.tuples(st.just("XLEN"), KEYS),
    st.tuples(st.sampled_from(["GET", "HGETALL", "SMEMBERS", "TYPE", "DEL", "EXISTS"]), KEYS),
    st.tuples(st.just("SET"), KEYS, VALUES),
    st.tuples(st.just("SET"), KEYS, VALUES, st.sampled_from(["NX", "XX", "EX", "ZZ"])),
    st.tuples(st.just("INCRBY"), KEYS, VALUES),
    st.tuples(st.just("HSET"), KEYS, FIELDS, VALUES),
    st.tuples(st.just("HINCRBY"), KEYS, FIELDS, VALUES),
    st.tuples(st.sampled_from(["HGET", "HDEL", "SADD", "SREM"]), KEYS, FIELDS),
    st.tuples(st.sampled_from(["SUBSCRIBE", "UNSUBSCRIBE"]), KEYS),
    st.tuples(st.just("PUBSUB"), st.just("NUMSUB"), KEYS),
    st.tuples(st.sampled_from(["MULTI", "EXEC", "DISCARD", "PING"])),
    st.tuples(st.just("CONFIG"), st.just("SET"), st.just("maxmemory"), st.sampled_from("01")),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(commands=st.lists(st.tuples(st.integers(0, 1), COMMANDS), max_size=40))
def test_random_commands_get_the_same_replies(
    server: redis_servers.RedisServer, commands: list[tuple[int, Argv]]
) -> None:
    pair = Pair(server)
    queueing: dict[int, bool] = {}
    try:
        for on, argv in commands:
            # A subscriber may only (un)subscribe and ping; MULTI gets no CONFIG and pub/sub.
            subscribed = bool(pair[on][0].connection.channels)
            if subscribed and argv[0] not in ("SUBSCRIBE", "UNSUBSCRIBE", "PING"):
                continue
            if queueing.get(on) and argv[0] in ("CONFIG", "SUBSCRIBE", "UNSUBSCRIBE"):
                continue
            pair.ask(*argv, on=on)
            queueing[on] = pair[on][0].connection.queue is not None
    finally:
        pair.close()
        server.run("CONFIG", "SET", "maxmemory", 0)
