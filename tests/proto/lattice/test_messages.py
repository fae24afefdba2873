"""Tests of messages against the recorded ones and another msgpack library, and damaged ones."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import Any

import msgpack
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.lattice import wire
from proto.lattice.bounds import MAX_MESSAGE_BYTES, MAX_SENT_ERROR_CHARS
from proto.lattice.entity import Entity
from proto.lattice.errors import FormatError, KeyFormatError
from proto.lattice.messages import (
    HealthCheckResponse,
    Invocation,
    InvocationResponse,
    LinkDefinition,
    decode_health,
    decode_invocation,
    decode_link,
    decode_response,
)
from tests.proto.lattice.identities import ACTOR, HOST, ID, ORIGIN, PROVIDER, TARGET, VECTORS, call

NAMES = ("origin", "target", "operation", "msg", "id", "encoded_claims", "host_id")
ALL_NAMES = (*NAMES, "content_length", "traceContext")
DECODERS: list[Callable[[bytes], Any]] = [
    *(decode_invocation, decode_response, decode_link, decode_health)
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PAYLOADS = st.binary(max_size=40)


packed = ormsgpack.packb
unpacked = ormsgpack.unpackb


def fields(**changes: Any) -> dict[str, Any]:
    """Return the fields of a call, in order; `...` as a value drops a field."""
    record: dict[str, Any] = {
        "origin": {"public_key": ACTOR.public, "link_name": "", "contract_id": ""},
        "target": {"public_key": PROVIDER.public, "link_name": "default", "contract_id": "a:b"},
        "operation": "A.B",
        "msg": b"abc",
        "id": ID,
        "encoded_claims": "a.b.c",
        "host_id": HOST.public,
        "content_length": 3,
        "traceContext": {},
    }
    return {name: value for name, value in {**record, **changes}.items() if value is not ...}


# --- recorded -----------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", VECTORS["links"], ids=lambda entry: str(entry["name"]))
def test_recorded_links(entry: dict[str, Any]) -> None:
    link = LinkDefinition(**entry["json"])
    for library in ("by_wasmcloud_core_hex", "by_wasmbus_rpc_hex"):
        assert decode_link(bytes.fromhex(entry[library])) == link
        assert link.encode().hex() == entry[library]


def test_recorded_health() -> None:
    recorded = VECTORS["health"]
    for response, name in [
        (HealthCheckResponse(True), "healthy_hex"),
        (HealthCheckResponse(False, "db down"), "unhealthy_hex"),
    ]:
        assert response.encode().hex() == recorded[name]
        assert decode_health(bytes.fromhex(recorded[name])) == response
    assert decode_health(b"\x80") == HealthCheckResponse(False)


@pytest.mark.parametrize(
    "entry", VECTORS["real_host"]["responses"], ids=lambda entry: entry["from"]
)
def test_responses_of_real_programs(entry: dict[str, Any]) -> None:
    response = decode_response(bytes.fromhex(entry["body_hex"]))
    assert response.encode().hex() == entry["body_hex"]


# --- forms --------------------------------------------------------------------------------------


@given(
    st.builds(
        Invocation,
        st.builds(Entity, TEXTS, TEXTS, TEXTS),
        st.builds(Entity, TEXTS, TEXTS, TEXTS),
        TEXTS,
        PAYLOADS,
        TEXTS,
        TEXTS,
        st.just(HOST.public),
        st.integers(0, (1 << 64) - 1),
        st.dictionaries(TEXTS, TEXTS, max_size=3),
    )
)
def test_calls_survive_and_are_packed_as_by_another(invocation: Invocation) -> None:
    data = invocation.encode()
    assert decode_invocation(data) == invocation
    assert packed(unpacked(data)) == data
    assert tuple(unpacked(data)) == ALL_NAMES


@given(
    st.builds(InvocationResponse, TEXTS, PAYLOADS, st.none() | TEXTS, st.integers(0, (1 << 64) - 1))
    | st.builds(
        LinkDefinition, TEXTS, TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3)
    )
    | st.builds(HealthCheckResponse, st.booleans(), st.none() | TEXTS)
)
def test_other_messages_survive(message: Any) -> None:
    decode = {
        InvocationResponse: decode_response,
        LinkDefinition: decode_link,
        HealthCheckResponse: decode_health,
    }[type(message)]
    assert decode(message.encode()) == message
    assert packed(unpacked(message.encode())) == message.encode()


@given(PAYLOADS, st.permutations(ALL_NAMES), st.data())
def test_each_form_that_peers_write_is_the_same_call(
    payload: bytes, order: list[str], data: st.DataObject
) -> None:
    record = fields(msg=payload)
    expected = decode_invocation(packed(record))
    assert expected.msg == payload
    form = data.draw(st.sampled_from(["map", "array", "entities"]))
    record["msg"] = data.draw(st.sampled_from([payload, list(payload)]))
    if form != "map":
        for name in ("origin", "target"):
            record[name] = list(record[name].values())
    if form == "array":
        body = packed(list(record.values()))
    else:
        unknown = {"unknown": data.draw(st.sampled_from([1, [0] * 40, {"x": [[1]]}]))}
        body = packed({**unknown, **{name: record[name] for name in order}})
    body += data.draw(st.binary(max_size=3))
    assert decode_invocation(body) == expected


@given(PAYLOADS)
def test_payloads_as_text_keep_their_bytes(payload: bytes) -> None:
    as_text = packed(fields()).replace(packed(b"abc"), b"\xd9" + bytes([len(payload)]) + payload)
    assert decode_invocation(as_text).msg == payload


def test_integers_of_any_width() -> None:
    narrow = b"content_length\x03"
    body = packed(fields())
    assert narrow in body
    for wide in (b"\xcc\x03", b"\xcd\0\x03", b"\xd0\x03", b"\xd3" + bytes(7) + b"\x03"):
        assert decode_invocation(body.replace(narrow, narrow[:-1] + wide)).content_length == 3


def test_a_payload_as_a_long_array() -> None:
    payload = bytes(range(256)) * 200
    record = fields(msg=list(payload), content_length=len(payload))
    assert decode_invocation(packed(record)).msg == payload
    assert decode_invocation(packed(list(record.values()))).msg == payload


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"origin": ...}, "field 'origin' is nil, expected a map"),
        ({"origin": {}}, "origin: field 'public_key' is nil, expected text"),
        ({"origin": [ACTOR.public, "", "", ""]}, "field 'origin' is an array"),
        ({"target": {"public_key": PROVIDER.public, "link_name": None}}, "'link_name' is nil"),
        ({"target": {"public_key": "V" * 257}}, "'public_key' has 257 characters, limit: 256"),
        ({"operation": None}, "'operation' is nil, expected text"),
        ({"operation": b"A.B"}, "'operation' is bytes, expected text"),
        ({"operation": "x" * 513}, "'operation' has 513 characters, limit: 512"),
        ({"msg": None}, "'msg' is nil, expected bytes"),
        ({"msg": 1.5}, "'msg' is a float, expected bytes"),
        ({"msg": {}}, "'msg' is a map, expected bytes"),
        ({"msg": [256]}, "'msg'"),
        ({"msg": [True]}, "'msg': expected bytes, or integers from 0 to 255"),
        ({"msg": [1] * 20 + [None]}, "'msg': expected bytes, or integers from 0 to 255"),
        ({"msg": [1] * 20 + [-1]}, "'msg'"),
        ({"id": "x" * 129}, "'id' has 129 characters, limit: 128"),
        ({"encoded_claims": "x" * 8193}, "'encoded_claims' has 8193 characters, limit: 8192"),
        ({"content_length": ...}, "'content_length' is missing"),
        ({"content_length": None}, "'content_length' is nil"),
        ({"content_length": -1}, "'content_length' is the integer -1, expected an integer from 0"),
        ({"content_length": 3.0}, "'content_length' is a float"),
        ({"content_length": True}, "'content_length' is a boolean"),
        ({"traceContext": None}, "'traceContext' is nil, expected a map of texts"),
        ({"traceContext": {"a": 1}}, "'traceContext' must be a map of texts"),
        ({"traceContext": {str(n): "" for n in range(65)}}, "has 65 entries, limit: 64"),
        ({"traceContext": {"a": "x" * 4097}}, "has 4097 characters in an entry, limit: 4096"),
        ({str(n): 1 for n in range(64)}, "of 73 fields, limit: 64"),
    ],
)
def test_errors_name_the_field_and_the_bound(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(FormatError, match=f"^invocation.*{says}") as caught:
        decode_invocation(packed(fields(**changes)))
    assert len(str(caught.value)) < 200


def bomb(levels: int, header: bytes) -> bytes:
    return packed(fields(msg=...)).replace(b"\x88", b"\x89", 1) + packed("x") + header * levels


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "expected a msgpack map or array"),
        (b"\xc1", "expected a msgpack map or array"),
        (b"\xc0", "expected a msgpack map or array"),
        (b"\xdf\xff\xff\xff\xff", "4294967295 fields, limit: 64"),
        (b"\xdd\xff\xff\xff\xff", "4294967295 fields, limit"),
        (b"\x81\xdb\xff\xff\xff\xff", "5|exceeds|end within a key"),
        (b"\x81\x91\x01\x01", "a key"),
        (b"\x81\xa2id", "end within field 'id'"),
        (b"\x82" + (packed("msg") + packed("a")) * 2, "field 'msg' occurs twice"),
        (b"\x81" + packed("traceContext") + b"\x82" + packed("a") * 4, "a key occurs twice"),
        (bomb(100_000, b"\x91"), "field 'x'"),
        (bomb(1_000, b"\xdd\x00\x0e\x10\x00"), "field 'x'"),
        (b"\x81" + packed("msg") + b"\xdd\x7f\xff\xff\xff", "end within field 'msg'"),
        (b"\x81" + packed("msg") + b"\xc6\x7f\xff\xff\xff", "field 'msg'"),
        (b"\x81" + packed("id") + b"\xdf\xff\xff\xff\xff", "field 'id'"),
        (bytes(MAX_MESSAGE_BYTES + 1), f"limit: {MAX_MESSAGE_BYTES} bytes"),
    ],
)
def test_bombs_and_torn_messages(data: bytes, says: str) -> None:
    for decode in (decode_invocation, decode_response):
        with pytest.raises(FormatError, match=f"^invocation.*({says})"):
            decode(data)


def test_the_largest_number() -> None:
    body = packed(fields(content_length=1 << 63))
    assert decode_invocation(body).content_length == 1 << 63
    assert decode_invocation(packed(fields(content_length=(1 << 64) - 1))).moved
    assert struct.pack(">Q", 1 << 63) in body


def test_texts_are_utf8() -> None:
    body = packed(fields(operation="AB")).replace(b"\xa2AB", b"\xa2A\xff")
    with pytest.raises(FormatError, match="'operation' is not UTF-8"):
        decode_invocation(body)


def test_errors_of_responses() -> None:
    assert decode_response(packed({"error": None, "content_length": 0})).error is None
    assert decode_response(packed({"error": ""})).error == ""
    with pytest.raises(FormatError, match="'error' is the integer 1, expected text or nil"):
        decode_response(packed({"error": 1}))
    long = InvocationResponse.failure(ID, "x" * 100_000)
    assert long.error is not None and len(long.error) == MAX_SENT_ERROR_CHARS
    with pytest.raises(FormatError, match="'values' is missing"):
        decode_link(packed({"actor_id": "M"}))


def test_a_call_of_a_bad_host_is_never_encoded() -> None:
    read = decode_invocation(packed(fields(host_id="")))
    with pytest.raises(KeyFormatError, match="0 characters, expected 56"):
        read.encode()
    assert call().origin == ORIGIN and call().target == TARGET


# --- anything -----------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 300) | st.floats() | TEXTS | PAYLOADS,
    lambda values: st.lists(values, max_size=20) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*ALL_NAMES, "values", "error", "x"]), VALUES, max_size=4))
def test_any_map_is_decoded_or_malformed(record: dict[str, Any]) -> None:
    data = packed({**fields(), **record})
    for decode in DECODERS:
        with contextlib.suppress(FormatError):
            decode(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_malformed(data: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(FormatError):
            decode(data)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3), st.booleans())
def test_one_step_and_field_by_field_agree(at: int, noise: bytes, cut: bool) -> None:
    body = packed(fields())
    body = body[:at] + noise + (b"" if cut else body[at + 1 :])
    try:
        record = msgpack.unpackb(body, raw=False, object_pairs_hook=wire._unique, max_array_len=16)
    except (ValueError, FormatError):
        return
    if type(record) is dict:
        walked = wire._walk(body, "invocation", ALL_NAMES, {"msg"})
        for name in walked.keys() - {"msg"}:
            assert repr(walked[name]) == repr(record[name])
