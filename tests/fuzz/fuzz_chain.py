"""Fuzz the reading of chain values: random bytes, damaged values, odd JSON headers.

A node's answer may be anything. Only the package's own errors may be raised, with a short text, and
encoding a value that was read gives the same bytes again.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from proto.chain import events, extrinsic, headers, relays, storage, twin
from proto.chain.errors import ChainFormatError
from proto.chain.extrinsic import IMMORTAL, Extrinsic, Signed
from proto.chain.headers import Header
from proto.chain.twin import Entity, Twin
from proto.identity.signing import KeyType
from tests.fuzz.damage import damaged

_STORED, _UPDATED = b"\x19\x0b", b"\x19\x0c"
_TWINS = [
    twin.encode(value)
    for value in (
        Twin(1, bytes(32)),
        Twin(2, bytes(range(32)), b"r1.example.com_r2.example.com", (), b"\2" + bytes(32)),
        Twin(2**32 - 1, b"\xff" * 32, bytes(1024), (Entity(7, bytes(64)),) * 3, bytes(128)),
    )
]
_EVENTS = events.encode_block(
    [events.encode_record(_STORED, raw, number) for number, raw in enumerate(_TWINS)]
)
_CALL = extrinsic.twin_call(b"\x19\x12", b"r1.example.com", b"\3" * 33)
_EXTRINSICS = [
    extrinsic.encode(Extrinsic(_CALL, signed))
    for signed in (
        None,
        Signed(bytes(32), KeyType.SR25519, bytes(64), IMMORTAL, 0, 0),
        Signed(bytes(32), KeyType.ED25519, bytes(64), b"\xe5\2", 70_000, 2**100),
    )
]
_HEADER = Header(bytes(32), 300, bytes(32), bytes(32), (b"\x06aura\0",)).to_json()
_ODD = [
    *(None, True, 0, -1, 1.5, "", "0x", "0X00", "0x0", "0xzz", "0x" + "00" * 32, "0x" + "00" * 33),
    *(
        "\ud800",
        "0x٣٣",
        " 0x00",
        "0x" + "0" * 200_000,
        [],
        [None],
        ["0x"] * 300,
        {},
        {"logs": None},
    ),
    *({"logs": []}, {"logs": ["0x00", 7]}, {"logs": {}}, 10**5000),
]


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("chain: twins", _twins),
        ("chain: events", _events),
        ("chain: transactions", _transactions),
        ("chain: headers", _headers),
        ("chain: keys and relays", _keys_and_relays),
    ]


def _refused(error: ChainFormatError) -> None:
    assert 0 < len(str(error)) < 200, "an error needs a short text"


def _twins(rng: random.Random) -> None:
    raw = _some(rng, _TWINS)
    try:
        value = twin.decode(raw)
    except ChainFormatError as error:
        return _refused(error)
    assert twin.encode(value) == raw


def _events(rng: random.Random) -> None:
    raw = _some(rng, [_EVENTS])
    try:
        assert events.count(raw) <= len(raw)
    except ChainFormatError as error:
        _refused(error)
    try:
        change = events.read_twin_record(raw, rng.randrange(len(raw) + 2), _STORED, _UPDATED)
    except ChainFormatError as error:
        return _refused(error)
    assert change is None or twin.encode(change.twin) in raw


def _transactions(rng: random.Random) -> None:
    raw = _some(rng, _EXTRINSICS)
    try:
        value = extrinsic.decode(raw)
    except ChainFormatError as error:
        return _refused(error)
    assert extrinsic.encode(value) == raw


def _headers(rng: random.Random) -> None:
    value: object = _HEADER | {rng.choice(sorted(_HEADER)): rng.choice(_ODD)}
    if rng.random() < 0.1:
        value = rng.choice(_ODD)
    try:
        header = headers.from_json(value)
    except ChainFormatError as error:
        return _refused(error)
    assert headers.from_json(header.to_json()) == header
    assert len(header.hash()) == 32


def _keys_and_relays(rng: random.Random) -> None:
    raw = _some(rng, [storage.twin_key(7), b"r1.example.com_r2.example.com"])
    try:
        assert storage.twin_key(storage.twin_of_key(raw)) == raw
    except ChainFormatError as error:
        _refused(error)
    names = relays.split(raw)
    assert relays.split(relays.join(names)) == names
    try:
        relays.check(raw)
    except ChainFormatError as error:
        return _refused(error)
    assert raw.isascii()


def _some(rng: random.Random, valid: list[bytes]) -> bytes:
    """Return random bytes, or one of the valid values, damaged in a few places."""
    if rng.random() < 0.2:
        return rng.randbytes(rng.randrange(300))
    good = rng.choice(valid)
    return damaged(rng, good, times=rng.randint(0, 3), longest_cut_bytes=4)
