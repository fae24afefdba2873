"""Fuzz uploads: damaged offers, answers, records and tags, and chunks in any order.

Only the package's own errors may be raised, with a short text. An accepted name is one component of
a path. A receiver never has more chunks than its window, and is complete only when every chunk was
written once. A sender survives any answer, and ends.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

from proto.files import messages, records
from proto.files.bounds import CHUNK_BYTES, SENDER_WINDOW_CHUNKS, STALL_S, WINDOW_CHUNKS
from proto.files.errors import FileError, RefusedError, StatusError
from proto.files.messages import Offer, State, Status
from proto.files.receiving import Receiving, Verdict
from proto.files.records import Record, RecordError, Stage
from proto.files.sending import Ask, Failure, Sender
from proto.rmb.address import Address
from tests.fuzz.damage import damaged

_SHA: Final = "ab" * 32
_OFFER: Final = Offer(3 * CHUNK_BYTES + 1, "name.bin", _SHA, "photos.new", True, "nonce")
_STATUS: Final = Status("0" * 32, State.OPEN, 1, (3,), 16, "name.bin")
_RECORD: Final = Record("0" * 32, Address(7, "x"), _OFFER, Stage.MOVED, 1e9, (1, 2, 3), _SHA)
_GOOD: Final = (
    messages.encode_offer(_OFFER),
    messages.encode_offer(Offer(0)),
    messages.encode_close(messages.Close("0" * 32, _SHA)),
    messages.encode_status(_STATUS),
    records.encode_record(_RECORD),
)
_ODD: Final[list[Any]] = [
    *(None, True, 0, -1, 1, 2**63, 10**400, 1.5, "", ".", "..", "a/b", "\ud800", "\0", "a" * 300),
    *([], [0], [2**70], {}, {"a": 1}, "open", "done", _SHA, "é" * 128, "\u202e", "con", "a. "),
]


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("files: payloads", _payloads),
        ("files: names", _names),
        ("files: receiver", _receiver),
        ("files: sender", _sender),
    ]


def _refused(error: FileError) -> None:
    assert 0 < len(str(error)) < 300, "an error needs a short text"
    str(error).encode()  # an answer contains it


def _payloads(rng: random.Random) -> None:
    data = _some(rng)
    try:
        offer = messages.parse_offer(data)
        assert messages.parse_offer(messages.encode_offer(offer)) == offer
        assert 0 < len(offer.id("uid")) <= 64
    except RefusedError as error:
        _refused(error)
    try:
        close = messages.parse_close(data)
        assert messages.parse_close(messages.encode_close(close)) == close
    except RefusedError as error:
        _refused(error)
    try:
        status = messages.parse_status(data, 4)
        assert messages.parse_status(messages.encode_status(status), 4) == status
    except StatusError as error:
        _refused(error)
    try:
        record = records.parse_record(data)
        assert records.parse_record(records.encode_record(record)) == record
    except RecordError as error:
        assert str(error)


def _names(rng: random.Random) -> None:
    name = "".join(
        rng.choice([chr(rng.randrange(0x110000)), chr(rng.randrange(128)), "./"[rng.randrange(2)]])
        for _ in range(rng.randrange(12))
    )
    try:
        offer = messages.offer_from_json({"size": 1, "name": name})
    except RefusedError as error:
        return _refused(error)
    assert offer.name and "/" not in name and "\0" not in name and name not in (".", "..")
    assert not name.startswith(".") and 0 < len(name.encode()) <= 255
    try:
        tag = messages.parse_chunk_tags(name)
    except RefusedError as error:
        return _refused(error)
    assert tag is None or messages.chunk_tags(*tag) == name


def _receiver(rng: random.Random) -> None:
    offer = Offer(rng.randrange(40 * CHUNK_BYTES))
    account = Receiving(offer)
    writing: set[int] = set()
    written: set[int] = set()
    for _ in range(rng.randrange(200)):
        index = account.prefix + rng.randint(-3, WINDOW_CHUNKS + 3)
        if rng.random() < 0.5 and writing:
            index = rng.choice(sorted(writing))
            writing.remove(index)
            if rng.random() < 0.2:
                account.dropped(index)
            else:
                written.add(index)
                account.wrote(index)
        else:
            size = offer.chunk_size(index) if rng.random() < 0.9 else rng.randrange(CHUNK_BYTES)
            try:
                verdict = account.expect(index, size)
            except RefusedError as error:
                _refused(error)
                continue
            assert (verdict is Verdict.HAD_ALREADY) == (index in written)
            if verdict is Verdict.WRITE:
                writing.add(index)
        assert len(writing) == account.writing <= WINDOW_CHUNKS
        assert len(account.beyond) < WINDOW_CHUNKS
        assert set(range(account.prefix)) | set(account.beyond) == written
        assert account.complete == (len(written) == offer.chunks)


def _sender(rng: random.Random) -> None:
    offer = Offer(rng.randrange(20 * CHUNK_BYTES), "a", _SHA)
    sender, now = Sender(offer, 0.0), 0.0
    under_way = []
    for _ in range(2000):
        while (request := sender.next_request(now)) is not None:
            under_way.append(request)
        assert len(under_way) <= SENDER_WINDOW_CHUNKS + 1
        assert 0 <= sender.acknowledged_bytes <= offer.size_bytes
        if sender.over:
            return
        timer = sender.next_timer()
        if not under_way:
            assert timer is not None and timer > now, "it waits for nothing"
            now = timer
            continue
        request = under_way.pop(rng.randrange(len(under_way)))
        now += rng.choice([0.0, 0.01, 1.0, request.timeout_s])
        if rng.random() < 0.3:
            code = rng.choice([None, None, 404, 429, 422, 102, 500, 507])
            sender.failed(request, Failure("no", code), now)
        elif request.ask is Ask.WRITE:
            sender.answered(request, b"", now)
        else:
            have = rng.randint(0, offer.chunks)
            state = State.DONE if request.ask is Ask.CLOSE and rng.random() < 0.5 else State.OPEN
            answer = messages.encode_status(Status("0" * 32, state, have))
            sender.answered(request, answer if rng.random() < 0.95 else _some(rng), now)
    assert now < STALL_S * 40, "it goes on for ever"


def _some(rng: random.Random) -> bytes:
    """Return random bytes, a valid value with one odd field, or a damaged one."""
    good = rng.choice(_GOOD)
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randrange(300))
    if kind < 0.6:
        fields = json.loads(good)
        fields[rng.choice(sorted(fields))] = rng.choice(_ODD)
        return json.dumps(fields).encode()
    return damaged(rng, good, times=rng.randint(0, 3), longest_cut_bytes=4)
