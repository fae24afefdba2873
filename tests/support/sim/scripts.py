"""The worker's Lua scripts in Python, found by the name in their first line (`-- name: <name>`).

They are written from the description of the protocol, not from the Lua text, so that the contract
test compares two independent versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.sim.values import ReplyError

Call = Callable[..., Any]
Script = Callable[[Call, list[bytes], list[bytes]], Any]


def claim(call: Call, keys: list[bytes], argv: list[bytes]) -> Any:
    """Enter newcomers in the directory, each with an epoch above all earlier ones of its key."""
    sessions, unused = keys
    boot_id, known_s, known_bound, *claims = argv
    call(b"DEL", unused)  # after a first write, which is never refused, the next ones are allowed
    seconds, microseconds = call(b"TIME")
    answers = []
    for key, since, remote in zip(*(iter(claims),) * 3, strict=True):
        former = call(b"HGET", sessions, key)
        epoch = int(seconds) * 10**6 + int(microseconds)
        if former is not None:
            epoch = max(epoch, _epoch_of(former) + 1)
        _enter(call, sessions, key, epoch, boot_id, since, remote)
        _remember(call, key, seconds, known_s, int(known_bound))
        answers += [b"%d" % epoch, former if former is not None else b""]
    return answers


def _remember(call: Call, key: bytes, seconds: bytes, known_s: bytes, bound: int) -> None:
    """Remember that a session has signed in; if there are too many, forget the older half."""
    known = b"relay:known:" + key.partition(b":")[0]
    call(b"HSET", known, key, seconds)
    call(b"EXPIRE", known, known_s)
    if int(call(b"HLEN", known)) > bound:
        fields = call(b"HGETALL", known)
        signed_in = dict(zip(fields[::2], map(int, fields[1::2]), strict=True))
        median = sorted(signed_in.values())[len(signed_in) // 2 - 1]
        old = [text for text, at in signed_in.items() if at <= median and text != key]
        call(b"HDEL", known, *old)


def hold(call: Call, keys: list[bytes], argv: list[bytes]) -> Any:
    """Compare a held epoch with the directory, and enter it again if that has none or a lower."""
    sessions, unused = keys
    key, epoch_text, boot_id, since, remote = argv
    call(b"DEL", unused)
    stored = call(b"HGET", sessions, key)
    epoch = int(epoch_text)
    if stored is not None and _epoch_of(stored) >= epoch:
        return b"%d" % _epoch_of(stored)
    _enter(call, sessions, key, epoch, boot_id, since, remote)
    return epoch_text


def release(call: Call, keys: list[bytes], argv: list[bytes]) -> int:
    """Remove an entry if it is still the caller's; notify the newcomer in any case."""
    (sessions,) = keys
    key, epoch_text = argv
    stored = call(b"HGET", sessions, key)
    own = stored is not None and _epoch_of(stored) == int(epoch_text)
    if own:
        call(b"HDEL", sessions, key)
    call(b"PUBLISH", b"wake:" + key, b"released " + epoch_text)
    return int(own)


def leave(call: Call, keys: list[bytes], argv: list[bytes]) -> Any:
    """Move entries of a guest without a session to the outbox, and count them there."""
    stream, sessions, outbox, account, lease = keys
    text, account_text, *rest = argv
    if call(b"HEXISTS", sessions, text):
        return None
    total, answers = 0, []
    for entry_id, origin, source, packed in zip(*(iter(rest),) * 4, strict=True):
        found = call(b"XRANGE", stream, entry_id, entry_id)
        answer: Any = None
        if found:
            ((_, fields),) = found
            call(b"XDEL", stream, entry_id)
            answer = 1
            if packed != b"0":
                envelope = fields[fields[::2].index(b"_") * 2 + 1]
                entry = (b"_", envelope, b"from", origin, b"for", account_text)
                new = call(b"XADD", outbox, b"*", *entry)
                total = call(b"HINCRBY", account, b"total", packed)
                answer = [new, call(b"HINCRBY", account, source, packed)]
        answers.append(answer)
    return [total, call(b"EXISTS", lease), answers]


def take(call: Call, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    """Store each message whose mark is in none of the latest sets, then add its mark."""
    prefix, *streams = keys
    period_s, periods, *rest = argv
    period = _period(call, period_s)
    answers: list[Any] = []
    stored: list[bytes] = []
    for stream, mark, envelope in zip(streams, rest[::2], rest[1::2], strict=True):
        sets = [prefix + b"%d" % (period - back) for back in range(int(periods))]
        if any(call(b"SISMEMBER", name, mark) for name in sets):
            answers.append(None)
            continue
        try:
            answers.append(call(b"XADD", stream, b"*", b"_", envelope))
        except ReplyError as error:
            answers.append(error)
        else:
            stored += [mark] if mark else []
    if stored:
        name = prefix + b"%d" % period
        call(b"SADD", name, *stored)
        call(b"EXPIRE", name, b"%d" % (int(period_s) * int(periods)))
    return answers


def _period(call: Call, period_s: bytes) -> int:
    seconds, _ = call(b"TIME")
    return int(seconds) // int(period_s)


def fullest(call: Call, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    """Count queued messages, and return the queues that reach a bound of messages or bytes."""
    messages_bound, bytes_bound = map(int, argv)
    lengths = [int(call(b"XLEN", stream)) for stream in keys]
    named: list[Any] = []
    for stream, messages in zip(keys, lengths, strict=True):
        if not messages:
            continue
        size_bytes = int(call(b"MEMORY", b"USAGE", stream, b"SAMPLES", b"5"))
        if messages >= messages_bound or size_bytes >= bytes_bound:
            named += [stream, messages, size_bytes]
    return [sum(lengths), *named]


def outlive(call: Call, keys: list[bytes], argv: list[bytes]) -> None:
    """Remove empty queues of sessions without a holder; give the others a time to live."""
    sessions, *streams = keys
    life, *texts = argv
    for stream, text in zip(streams, texts, strict=True):
        is_held = call(b"HEXISTS", sessions, text)
        if not is_held and not call(b"XLEN", stream):
            call(b"DEL", stream)
            continue
        left = int(call(b"TTL", stream))
        if left == -1 or (0 <= 2 * left < int(life) and is_held):
            call(b"EXPIRE", stream, life)


def held(call: Call, keys: list[bytes], argv: list[bytes]) -> Any:
    """Charge queues to their twins, or refund messages that have left the queues."""
    sessions, unused = keys
    what, life, new_bytes, *rest = argv
    call(b"DEL", unused)
    deltas: dict[bytes, list[int]] = {}

    def add(name: bytes, *amounts: int) -> None:
        before = deltas.setdefault(name, [0, 0, 0, 0])
        deltas[name] = [old + new for old, new in zip(before, amounts, strict=True)]

    def leave(key: bytes, left: int) -> None:
        name, received = b"relay:held:" + key, b"relay:to:" + key.partition(b":")[0]
        fields = call(b"HGETALL", name)
        counts = dict(zip(fields[::2], map(int, fields[1::2]), strict=True))
        unknown = counts.pop(b"unknown", 0)
        total = sum(packed & _MASK for packed in counts.values())
        if not fields or 0 < left >= total:
            return
        kept = 0
        for twin, packed in counts.items():
            messages, size = packed & _MASK, packed >> _BITS
            some = messages * left // total
            some_size = size * left // total if some else 0
            kept += some
            if some:
                call(b"HSET", name, twin, b"%d" % (some_size << _BITS | some))
            else:
                call(b"HDEL", name, twin)
            add(b"relay:from:" + twin, some - messages, some_size - size, -(not some), 0)
            add(received, some - messages, some_size - size, 0, 0)
        if not kept:
            call(b"DEL", name)
            add(received, 0, 0, -1, -unknown)

    connected: list[int] = []
    shares: list[bytes] = []
    if what == b"charge":
        items = list(zip(*(iter(rest),) * 5, strict=True))
        for key, always, twin, messages, size_text in items:
            name, to = b"relay:held:" + key, key.partition(b":")[0]
            connected.append(int(call(b"HEXISTS", sessions, key)))
            if connected[-1] and always == b"0":
                continue
            size, queues, unknown = int(size_text), 0, 0
            if not call(b"EXISTS", name):
                size, queues = size + int(new_bytes), 1
                if not connected[-1] and not call(b"HEXISTS", b"relay:known:" + to, key):
                    unknown = 1
                    call(b"HSET", name, b"unknown", b"1")
            first = not call(b"HEXISTS", name, twin)
            call(b"HINCRBY", name, twin, b"%d" % (size << _BITS | int(messages)))
            call(b"EXPIRE", name, life)
            add(b"relay:from:" + twin, int(messages), size, int(first), 0)
            add(b"relay:to:" + to, int(messages), size, queues, unknown)
        for key in dict.fromkeys(item[0] for item in items if item[1] == b"1"):
            leave(key, call(b"XLEN", b"stream:" + key))
        shares = [call(b"HGET", b"relay:held:" + key, twin) or b"0" for key, _, twin, *_ in items]
    else:
        for key in rest:
            leave(key, call(b"XLEN", b"stream:" + key) if what == b"settle" else 0)
    charged: list[Any] = []
    for name, amounts in deltas.items():
        fields = (b"messages", b"bytes", b"queues", b"unknown")
        counts = [
            call(b"HINCRBY", name, field, b"%d" % amount)
            for field, amount in zip(fields, amounts, strict=True)
        ]
        if counts[2] > 0:
            call(b"EXPIRE", name, life)
        else:
            call(b"DEL", name)
            counts = [0, 0, 0, 0]
        charged.append([name, *counts])
    return [[*connected, *shares], charged]


_BITS = 24
_MASK = (1 << _BITS) - 1


def _epoch_of(entry: bytes) -> int:
    return int(entry.split(b" ", 1)[0])


def _enter(call: Call, sessions: bytes, key: bytes, epoch: int, *rest: bytes) -> None:
    call(b"HSET", sessions, key, b" ".join((b"%d" % epoch, *rest)))
    call(b"PUBLISH", b"wake:" + key, b"evict %d" % epoch)


SCRIPTS: dict[str, Script] = {
    "claim": claim,
    "fullest": fullest,
    "held": held,
    "hold": hold,
    "leave": leave,
    "outlive": outlive,
    "release": release,
    "take": take,
}


def script_name(text: bytes) -> str:
    """Return the name in a script's first line, or "" if it has no name."""
    first_line = text.lstrip().split(b"\n", 1)[0].strip()
    prefix = b"-- name:"
    return first_line[len(prefix) :].strip().decode() if first_line.startswith(prefix) else ""
