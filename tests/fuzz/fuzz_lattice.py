"""Fuzz the lattice: keys, subjects, messages, tokens, checks, and the JSON of hosts.

Only the documented errors may be raised, a message that was read keeps its meaning when it is
written again, and a call is accepted only if it was signed in exactly this form.
"""

from __future__ import annotations

import base64
import contextlib
import random
from collections.abc import Callable
from typing import Any

import msgpack

from proto.lattice import control, events, host_data, messages, recording, registry, state
from proto.lattice.claims import read_signed
from proto.lattice.errors import CheckError, FormatError, KeyFormatError
from proto.lattice.invocation import check
from proto.lattice.nkeys import KeyPair, decode_public, encode_public
from proto.lattice.subjects import parse_rpc_subject, provider_subject
from tests.fuzz.damage import damaged
from tests.proto.lattice.identities import (
    CLUSTER,
    HOST,
    IAT,
    PROVIDER,
    TARGET,
    VECTORS,
    call,
)

CALL = call()
BODIES = [
    CALL.encode(),
    *(bytes.fromhex(entry["body_hex"]) for entry in VECTORS["variants"]["list"]),
    *(bytes.fromhex(entry["by_wasmbus_rpc_hex"]) for entry in VECTORS["links"]),
    *(bytes.fromhex(entry["by_wasmcloud_core_hex"]) for entry in VECTORS["responses"]),
    *(bytes.fromhex(text) for text in VECTORS["health"].values()),
]
DECODERS: list[Callable[[bytes], Any]] = [
    messages.decode_invocation,
    messages.decode_response,
    messages.decode_link,
    messages.decode_health,
]
BOMBS = [
    *(b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x91" * 2_000),
    *(b"\xdd\x00\x0e\x10\x00" * 200, b"\xcf" + b"\xff" * 8, b"\xcb" + bytes(8), b"\xc0", b"\xc1"),
    *(b"\xd6\xff" + bytes(4), b"\xc7\x0c\xff" + bytes(12), b"\x81\x01\x02", b"\xa1\xff"),
]
REPLIES = [
    *(entry["reply"].encode() for entry in VECTORS["control"]["ops"] if entry["reply"]),
    *(entry["reply"].encode() for entry in VECTORS["real_host"]["control"]),
    *(text.encode() for text in VECTORS["real_host"]["registry"].values()),
    *(text.encode() for text in VECTORS["real_host"]["events"].values()),
    VECTORS["host_data"]["text"].encode(),
    VECTORS["shutdown"]["request_text"].encode(),
]
JSON_DECODERS: list[Callable[[bytes], Any]] = [
    *(control.decode_ack, control.decode_host, control.decode_links, control.decode_claims_list),
    *(control.decode_bid, events.decode_event, messages.decode_shutdown),
    lambda data: control.decode_inventory(data, HOST.public),
    lambda data: registry.decode_claims("CLAIMS_", data),
    lambda data: state.decode(state.HostRow, data),
    lambda data: recording.decode_batch({b"shapes": data, b"rows": data, b"lost": data[:3]}),
    lambda data: host_data.decode_host_data(base64.b64encode(data)),
]
JSON_SCRAPS = [
    *(b"null", b"1e999", b"NaN", b"9" * 5_000, b"[" * 3_000, b'"\\ud800"', b"\xff", b"true", b"{}"),
    *(b"[]", b'"', b",", b":", b"-1", b"1.5"),
]


def _keys(rng: random.Random) -> None:
    good = rng.choice([PROVIDER.public, PROVIDER.seed, HOST.public]).encode()
    text = damaged(rng, good, times=rng.randint(0, 2), longest_cut_bytes=3).decode("latin-1")
    with contextlib.suppress(KeyFormatError):
        assert encode_public(*decode_public(text)) == text
    with contextlib.suppress(KeyFormatError):
        assert KeyPair.of_seed(text).seed == text


def _subjects(rng: random.Random) -> None:
    good = provider_subject("default", PROVIDER.public, "a.b").encode()
    text = damaged(rng, good, times=rng.randint(0, 3), longest_cut_bytes=9).decode("latin-1")
    with contextlib.suppress(FormatError):
        found = parse_rpc_subject(text)
        if found.link_name:
            assert provider_subject(*found) == text


def _messages(rng: random.Random) -> None:
    data = _damaged_message(rng)
    for decode in DECODERS:
        try:
            message = decode(data)
        except FormatError as error:
            assert 0 < len(str(error)) < 300
            continue
        with contextlib.suppress(KeyFormatError):  # raised for an invalid host key
            again = decode(message.encode())
            assert again == message or again.content_length == len(message.msg)  # length omitted


def _checks(rng: random.Random) -> None:
    """Check that a damaged call is refused, unless the damage is in a part that is not signed."""
    data = damaged(rng, CALL.encode(), times=rng.randint(0, 2), longest_cut_bytes=4)
    try:
        invocation = messages.decode_invocation(data)
        claims = check(invocation, issuers={CLUSTER.public}, now=IAT, expected_target=TARGET)
    except (FormatError, CheckError) as error:
        assert 0 < len(str(error)) < 3_000
        return
    assert invocation.encoded_claims == CALL.encoded_claims
    assert (invocation.operation, invocation.msg) == (CALL.operation, CALL.msg)
    # Compare URLs, which are what is signed: they do not preserve the case of a link name.
    assert (invocation.origin.url, invocation.target.url) == (CALL.origin.url, TARGET.url)
    assert claims.issuer == CLUSTER.public


def _tokens(rng: random.Random) -> None:
    good = CALL.encoded_claims
    header, body, _ = good.split(".")
    if rng.random() < 0.5:  # signed, with any content
        content = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        content = _damaged_json(rng, content)
        signed = f"{header}.{base64.urlsafe_b64encode(content).rstrip(b'=').decode()}"
        made = base64.urlsafe_b64encode(CLUSTER.sign(signed.encode())).rstrip(b"=").decode()
        with contextlib.suppress(CheckError):
            assert read_signed(f"{signed}.{made}").issuer == CLUSTER.public
        return
    text = damaged(rng, good.encode(), times=rng.randint(0, 2), longest_cut_bytes=4)
    with contextlib.suppress(CheckError):
        read_signed(text.decode("latin-1"))
        assert text.decode() == good


def _json(rng: random.Random) -> None:
    data = _damaged_json(rng, rng.choice(REPLIES))
    for decode in JSON_DECODERS:
        try:
            decode(data)
        except FormatError as error:
            assert 0 < len(str(error)) < 1_000
    line = damaged(rng, base64.b64encode(data), times=rng.randint(0, 2), longest_cut_bytes=3)
    with contextlib.suppress(FormatError):
        host_data.decode_host_data(line)


def _damaged_message(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return rng.randbytes(rng.randint(0, 60))
    good = rng.choice(BODIES)
    if rng.random() < 0.3:  # a field of another type
        with contextlib.suppress(ValueError):
            record = msgpack.unpackb(good, raw=False, unicode_errors="surrogateescape")
            if isinstance(record, dict):
                name = rng.choice(list(record))
                record[name] = rng.choice([None, 1.5, -1, True, "x", b"x", [1, 2], {"a": []}, []])
                return bytes(msgpack.packb(record, unicode_errors="surrogateescape"))
    if rng.random() < 0.4:
        at = rng.randrange(len(good) + 1)
        return good[:at] + rng.choice(BOMBS) + good[at + rng.randint(0, 4) :]
    return damaged(rng, good, times=rng.randint(0, 3), longest_cut_bytes=8)


def _damaged_json(rng: random.Random, good: bytes) -> bytes:
    if rng.random() < 0.5:
        at = rng.randrange(len(good) + 1)
        return good[:at] + rng.choice(JSON_SCRAPS) + good[at + rng.randint(0, 6) :]
    return damaged(rng, good, times=rng.randint(0, 3), longest_cut_bytes=8)


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("lattice.keys", _keys),
        ("lattice.subjects", _subjects),
        ("lattice.messages", _messages),
        ("lattice.checks", _checks),
        ("lattice.tokens", _tokens),
        ("lattice.json", _json),
    ]
