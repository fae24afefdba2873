"""The data of SimRedis and the commands on it, one function per command.

Only the commands that a relay worker sends are implemented (and those with which tests inspect
data), with the replies and error texts of Redis 6.2; `tests/contract/test_redis_model.py` compares
them with real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from tests.support.sim.values import (
    MAX_SEQUENCE,
    OK,
    ReplyError,
    Status,
    Stream,
    StreamId,
    format_id,
    parse_id,
    size_of,
)

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
SYNTAX = "ERR syntax error"
EMPTY_BYTES = 1_000_000
"""Memory that a server without any key uses, in bytes."""

Args = list[bytes]
Value = TypeVar("Value")


class Keyspace:
    """Keys with their expiry times. The server sets the time, a field, before each command."""

    def __init__(self) -> None:
        self.values: dict[bytes, Any] = {}
        self.deadlines_ms: dict[bytes, int] = {}
        self.now_us = 0

    def peek(self, key: bytes) -> Any:
        deadline = self.deadlines_ms.get(key)
        if deadline is not None and deadline <= self.now_us // 1000:
            self.delete(key)
        return self.values.get(key)

    def read(self, key: bytes, kind: type[Value]) -> Value | None:
        value = self.peek(key)
        if value is not None and not isinstance(value, kind):
            raise ReplyError(WRONG_TYPE)
        return value

    def open(self, key: bytes, kind: type[Value]) -> Value:
        value = self.read(key, kind)
        if value is None:
            value = self.values[key] = kind()
        return value

    def delete(self, key: bytes) -> bool:
        self.deadlines_ms.pop(key, None)
        return self.values.pop(key, None) is not None

    def delete_if_empty(self, key: bytes) -> None:
        if not self.values.get(key):
            self.delete(key)

    def used_memory(self) -> int:
        return EMPTY_BYTES + sum(len(key) + size_of(value) for key, value in self.values.items())


@dataclass(frozen=True, slots=True)
class Command:
    run: Callable[[Keyspace, Args], Any]
    arity: int  # as Redis counts: the name included; negative means "at least"
    write: bool
    grows: bool  # refused when out of memory


COMMANDS: dict[str, Command] = {}


def command(name: str, arity: int, *, write: bool = False, grows: bool = False) -> Any:
    def register(run: Callable[[Keyspace, Args], Any]) -> Callable[[Keyspace, Args], Any]:
        COMMANDS[name] = Command(run, arity, write or grows, grows)
        return run

    return register


def integer(text: bytes) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ReplyError(NOT_AN_INTEGER) from None
    if str(value).encode() != text or not -(2**63) <= value < 2**63:
        raise ReplyError(NOT_AN_INTEGER)
    return value


def added(value: int, increment: int) -> int:
    if not -(2**63) <= value + increment < 2**63:
        raise ReplyError("ERR increment or decrement would overflow")
    return value + increment


# Streams


@command("xadd", -5, grows=True)
def xadd(db: Keyspace, args: Args) -> Any:
    key, rest = args[0], list(args[1:])
    create, trim = True, None
    while rest:
        option = rest[0].upper()
        if option == b"NOMKSTREAM":
            create = False
            rest.pop(0)
        elif option in (b"MAXLEN", b"MINID"):
            trim, rest = _trim_options(rest)
        else:
            break
    if not rest or len(rest) % 2 == 0 or len(rest) < 3:
        raise ReplyError("ERR wrong number of arguments for 'xadd' command")
    wanted = None if rest[0] == b"*" else parse_id(rest[0])
    if wanted == (0, 0):
        raise ReplyError("ERR The ID specified in XADD must be greater than 0-0")
    stream = db.read(key, Stream)
    if stream is None and not create:
        return None
    last = stream.last_id if stream is not None else (0, 0)
    if wanted is None:
        entry_id = (db.now_us // 1000, 0)
        if entry_id <= last:
            entry_id = (last[0], last[1] + 1)
    elif wanted <= last:
        raise ReplyError(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item"
        )
    else:
        entry_id = wanted
    stream = db.open(key, Stream)
    stream.add(entry_id, rest[1:])
    if trim is not None:
        _trim(stream, trim)
    return format_id(entry_id)


@command("xtrim", -4, write=True)
def xtrim(db: Keyspace, args: Args) -> int:
    trim, rest = _trim_options(list(args[1:]))
    if rest:
        raise ReplyError(SYNTAX)
    stream = db.read(args[0], Stream)
    return 0 if stream is None else _trim(stream, trim)


Trim = tuple[bytes, bool, Any]


def _trim_options(rest: Args) -> tuple[Trim, Args]:
    strategy, approximate = rest.pop(0).upper(), False
    if strategy not in (b"MAXLEN", b"MINID"):
        raise ReplyError(SYNTAX)
    if rest and rest[0] in (b"~", b"="):
        approximate = rest.pop(0) == b"~"
    if not rest:
        raise ReplyError(SYNTAX)
    threshold = rest.pop(0)
    if strategy == b"MINID":
        return (strategy, approximate, parse_id(threshold)), rest
    if integer(threshold) < 0:
        raise ReplyError("ERR The MAXLEN argument must be >= 0.")
    return (strategy, approximate, integer(threshold)), rest


def _trim(stream: Stream, trim: Trim) -> int:
    strategy, approximate, threshold = trim
    if strategy == b"MAXLEN":
        return stream.drop_first(max(0, len(stream.ids) - threshold), approximate)
    return stream.drop_first(sum(1 for i in stream.ids if i < threshold), approximate)


@command("xdel", -3, write=True)
def xdel(db: Keyspace, args: Args) -> int:
    stream = db.read(args[0], Stream)
    if stream is None:
        return 0
    wanted = [parse_id(text) for text in args[1:]]
    return sum(stream.remove(entry_id) for entry_id in wanted)


@command("xlen", 2)
def xlen(db: Keyspace, args: Args) -> int:
    stream = db.read(args[0], Stream)
    return 0 if stream is None else len(stream.ids)


@command("xrange", -4)
def xrange_(db: Keyspace, args: Args) -> Any:
    start = _bound(args[1], 0)
    end = _bound(args[2], MAX_SEQUENCE)
    count = None
    if len(args) > 3:
        if len(args) != 5 or args[3].upper() != b"COUNT":
            raise ReplyError(SYNTAX)
        count = max(0, integer(args[4]))
    stream = db.read(args[0], Stream)
    if stream is None:
        return []
    if count == 0:
        return None
    found = stream.between(start, end)[:count]
    return [[format_id(entry_id), list(stream.entries[entry_id])] for entry_id in found]


def _bound(text: bytes, default_sequence: int) -> StreamId:
    """Parse a bound of XRANGE: `-`, `+`, an id, one without its sequence, or `(` before an id."""
    if text == b"-":
        return (0, 0)
    if text == b"+":
        return (MAX_SEQUENCE, MAX_SEQUENCE)
    is_start = default_sequence == 0
    if not text.startswith(b"("):
        return parse_id(text, default_sequence)
    milliseconds, sequence = parse_id(text[1:], default_sequence)
    if is_start:
        if (milliseconds, sequence) == (MAX_SEQUENCE, MAX_SEQUENCE):
            raise ReplyError("ERR invalid start ID for the interval")
        if sequence == MAX_SEQUENCE:
            return (milliseconds + 1, 0)
        return (milliseconds, sequence + 1)
    if (milliseconds, sequence) == (0, 0):
        raise ReplyError("ERR invalid end ID for the interval")
    return (milliseconds, sequence - 1) if sequence else (milliseconds - 1, MAX_SEQUENCE)


# Strings and keys


@command("get", 2)
def get(db: Keyspace, args: Args) -> bytes | None:
    return db.read(args[0], bytes)


@command("set", -3, grows=True)
def set_(db: Keyspace, args: Args) -> Any:
    key, value, rest = args[0], args[1], [option.upper() for option in args[2:]]
    ttl_ms, only_new, only_known = None, False, False
    while rest:
        option = rest.pop(0)
        if option in (b"EX", b"PX") and rest and ttl_ms is None:
            ttl = integer(rest.pop(0))
            if ttl <= 0:
                raise ReplyError("ERR invalid expire time in set")
            ttl_ms = ttl * (1000 if option == b"EX" else 1)
        elif option == b"NX" and not only_known:
            only_new = True
        elif option == b"XX" and not only_new:
            only_known = True
        else:
            raise ReplyError(SYNTAX)
    known = db.peek(key) is not None
    if (only_new and known) or (only_known and not known):
        return None
    db.values[key] = value
    db.deadlines_ms.pop(key, None)
    if ttl_ms is not None:
        db.deadlines_ms[key] = db.now_us // 1000 + ttl_ms
    return OK


@command("incrby", 3, grows=True)
def incrby(db: Keyspace, args: Args) -> int:
    increment = integer(args[1])
    stored = db.read(args[0], bytes)
    value = added(integer(stored if stored is not None else b"0"), increment)
    db.values[args[0]] = b"%d" % value
    return value


@command("incr", 2, grows=True)
def incr(db: Keyspace, args: Args) -> int:
    return incrby(db, [args[0], b"1"])


@command("scan", -2)
def scan(db: Keyspace, args: Args) -> list[Any]:
    """Return all keys at once, whatever COUNT is; a real server may need several calls."""
    options = dict(zip((a.upper() for a in args[1::2]), args[2::2], strict=True))
    pattern = options.get(b"MATCH", b"*").decode()
    found = [key for key in list(db.values) if fnmatchcase(key.decode(), pattern)]
    if (kind := options.get(b"TYPE")) is not None:
        found = [key for key in found if type_(db, [key]).text == kind.decode()]
    return [b"0", found]


@command("del", -2, write=True)
def del_(db: Keyspace, args: Args) -> int:
    return sum(db.peek(key) is not None and db.delete(key) for key in args)


@command("exists", -2)
def exists(db: Keyspace, args: Args) -> int:
    return sum(db.peek(key) is not None for key in args)


@command("expire", 3, write=True)
def expire(db: Keyspace, args: Args) -> int:
    ttl_s = integer(args[1])
    if db.peek(args[0]) is None:
        return 0
    if ttl_s <= 0:
        db.delete(args[0])
    else:
        db.deadlines_ms[args[0]] = db.now_us // 1000 + ttl_s * 1000
    return 1


@command("ttl", 2)
def ttl(db: Keyspace, args: Args) -> int:
    if db.peek(args[0]) is None:
        return -2
    deadline = db.deadlines_ms.get(args[0])
    return -1 if deadline is None else (deadline - db.now_us // 1000 + 500) // 1000


@command("memory", -2)
def memory(db: Keyspace, args: Args) -> int | None:
    if args[0].upper() != b"USAGE" or len(args) < 2:
        raise ReplyError(SYNTAX)
    value = db.peek(args[1])
    return None if value is None else len(args[1]) + size_of(value)


# Hashes and sets


@command("hset", -4, grows=True)
def hset(db: Keyspace, args: Args) -> int:
    if len(args) % 2 == 0:
        raise ReplyError("ERR wrong number of arguments for 'hset' command")
    fields = db.open(args[0], dict)
    before = len(fields)
    for name, value in zip(args[1::2], args[2::2], strict=True):
        fields[name] = value
    return len(fields) - before


@command("hget", 3)
def hget(db: Keyspace, args: Args) -> bytes | None:
    return (db.read(args[0], dict) or {}).get(args[1])


@command("hgetall", 2)
def hgetall(db: Keyspace, args: Args) -> list[bytes]:
    return [part for item in (db.read(args[0], dict) or {}).items() for part in item]


@command("hscan", -3)
def hscan(db: Keyspace, args: Args) -> list[Any]:
    return [b"0", hgetall(db, args[:1])]


@command("hmget", -3)
def hmget(db: Keyspace, args: Args) -> list[bytes | None]:
    fields = db.read(args[0], dict) or {}
    return [fields.get(name) for name in args[1:]]


@command("hlen", 2)
def hlen(db: Keyspace, args: Args) -> int:
    return len(db.read(args[0], dict) or {})


@command("hexists", 3)
def hexists(db: Keyspace, args: Args) -> int:
    return int(args[1] in (db.read(args[0], dict) or {}))


@command("hdel", -3, write=True)
def hdel(db: Keyspace, args: Args) -> int:
    fields = db.read(args[0], dict)
    if fields is None:
        return 0
    removed = sum(fields.pop(name, None) is not None for name in args[1:])
    db.delete_if_empty(args[0])
    return removed


@command("hincrby", 4, grows=True)
def hincrby(db: Keyspace, args: Args) -> int:
    increment = integer(args[2])
    fields = db.read(args[0], dict) or {}
    try:
        stored = integer(fields.get(args[1], b"0"))
    except ReplyError:
        raise ReplyError("ERR hash value is not an integer") from None
    value = added(stored, increment)
    db.open(args[0], dict)[args[1]] = b"%d" % value
    return value


@command("sadd", -3, grows=True)
def sadd(db: Keyspace, args: Args) -> int:
    members = db.open(args[0], set)
    before = len(members)
    members.update(args[1:])
    return len(members) - before


@command("srem", -3, write=True)
def srem(db: Keyspace, args: Args) -> int:
    members = db.read(args[0], set)
    if members is None:
        return 0
    before = len(members)
    members.difference_update(args[1:])
    removed = before - len(members)
    db.delete_if_empty(args[0])
    return removed


@command("smembers", 2)
def smembers(db: Keyspace, args: Args) -> list[bytes]:
    return sorted(db.read(args[0], set) or ())


@command("sismember", 3)
def sismember(db: Keyspace, args: Args) -> int:
    return int(args[1] in (db.read(args[0], set) or ()))


@command("smismember", -3)
def smismember(db: Keyspace, args: Args) -> list[int]:
    members = db.read(args[0], set) or ()
    return [int(each in members) for each in args[1:]]


@command("scard", 2)
def scard(db: Keyspace, args: Args) -> int:
    return len(db.read(args[0], set) or ())


# Server


@command("time", 1)
def time(db: Keyspace, args: Args) -> list[bytes]:
    return [b"%d" % (db.now_us // 10**6), b"%d" % (db.now_us % 10**6)]


@command("echo", 2)
def echo(db: Keyspace, args: Args) -> bytes:
    return args[0]


@command("type", 2)
def type_(db: Keyspace, args: Args) -> Status:
    value = db.peek(args[0])
    names = {bytes: "string", dict: "hash", set: "set", Stream: "stream"}
    return Status("none" if value is None else names[type(value)])
