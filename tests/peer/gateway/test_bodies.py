"""The JSON of the queues: gateways read any way of writing it, or refuse a field by name."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peer.gateway import bodies, bounds
from peer.gateway.bodies import BodyError, Failure
from proto.rmb.address import Address

# As published clients write them, with the fields in the same order.
GO_REQUEST = (
    b'{"ver":1,"ref":"","cmd":"zos.system.version","exp":3600,"dat":"bnVsbA==","tag":"",'
    b'"dst":[29],"con":null,"ret":"d3c2c1c0-0000-4000-8000-000000000001","now":1795218235,'
    b'"shm":"application/json"}'
)
TYPESCRIPT_REQUEST = (
    b'{"ver":1,"ref":"","cmd":"calc.add","exp":7.5,"dat":"WzEsMl0=","dst":[5],'
    b'"ret":"r","now":1795218235,"shm":"application/json"}'
)
GO_ERROR = (
    b'{"ver":1,"ref":"u","dat":"bnVsbA==","dst":"7","now":1795218235,"shm":"application/json",'
    b'"err":{"code":255,"message":"no such function"}}'
)
TYPESCRIPT_ANSWER = (
    b'{"ver":1,"ref":"u","dst":"7:app","dat":"Mw==","shm":"application/json","err":null,'
    b'"now":1795218235}'
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.mark.parametrize("place", ["first", "last"])
def test_who_wrote_what_is_too_large_is_known_all_the_same(place: str) -> None:
    rest = '"ret": "r", "ref": "say \\"dat\\": \\"x\\""'
    large = f'"dat" : "{"A" * bodies.MAX_BODY_BYTES}"'
    raw = "{" + (f"{large}, {rest}" if place == "first" else f"{rest}, {large}") + "}"
    with pytest.raises(BodyError, match="at most 25165824 are allowed") as caught:
        bodies.read_request(raw.encode())
    assert (caught.value.ret, caught.value.reference) == ("r", 'say "dat": "x"')


def test_what_is_too_large_beside_its_payload_is_not_read() -> None:
    raw = b'{"ret": "r", "cmd": "%b"}' % (b"A" * bodies.MAX_BODY_BYTES)
    with pytest.raises(BodyError, match="at most 25165824 are allowed") as caught:
        bodies.read_request(raw)
    assert caught.value.ret == ""


def request(**fields: Any) -> bytes:
    """Return a request as a program would write it, with some fields changed."""
    whole = {"cmd": "a.b", "dst": [7], "ret": "r", "dat": "", "exp": 5, "now": 9, **fields}
    return json.dumps(
        {name: value for name, value in whole.items() if value != "leave out"}
    ).encode()


def test_requests_of_the_go_client() -> None:
    found = bodies.read_request(GO_REQUEST)
    assert found.payload == b"null"
    assert found.destinations == (29,)
    assert (found.reference, found.tags) == ("", "")
    assert found.expiration_s == 3600
    assert found.ret == "d3c2c1c0-0000-4000-8000-000000000001"


def test_requests_of_the_typescript_client() -> None:
    found = bodies.read_request(TYPESCRIPT_REQUEST)
    assert found.expiration_s == 8
    assert found.tags is None
    assert found.payload == b"[1,2]"


def test_answers_of_the_go_and_typescript_servers() -> None:
    error = bodies.read_response(GO_ERROR)
    assert error.failure == Failure(255, "no such function")
    assert error.payload == b""
    answer = bodies.read_response(TYPESCRIPT_ANSWER)
    assert answer.destination == Address(7, "app")
    assert answer.failure is None
    assert answer.payload == b"3"


@given(
    reference=st.none() | TEXT,
    command=TEXT.filter(bool),
    payload=st.binary(max_size=200),
    tags=st.none() | TEXT,
    schema=st.none() | TEXT,
    destinations=st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=5, unique=True),
    expiration=st.integers(0, 10_000),
    now=st.integers(0, 2**40),
    unknown=st.dictionaries(TEXT.map("x".__add__), st.integers() | TEXT | st.none(), max_size=3),
)
def test_every_request_is_read_back(
    reference: str | None,
    command: str,
    payload: bytes,
    tags: str | None,
    schema: str | None,
    destinations: list[int],
    expiration: int,
    now: int,
    unknown: dict[str, Any],
) -> None:
    raw = json.dumps(
        {
            **unknown,
            "ref": reference,
            "cmd": command,
            "exp": expiration,
            "dat": base64.b64encode(payload).decode(),
            "tag": tags,
            "dst": destinations,
            "ret": "r",
            "shm": schema,
            "now": now,
        },
        ensure_ascii=bool(now % 2),
    ).encode()
    if len(command.encode()) > bounds.MAX_COMMAND_BYTES:
        return
    found = bodies.read_request(raw)
    expected = (reference, command, expiration, payload, tags)
    assert found == (*expected, tuple(destinations), "r", schema, now)


@given(
    uid=TEXT,
    twin=st.integers(1, 2**32 - 1),
    connection=st.none() | TEXT,
    command=TEXT,
    payload=st.binary(max_size=200),
    schema=st.none() | TEXT,
    tags=st.none() | TEXT,
)
def test_a_service_reads_what_was_asked(
    uid: str,
    twin: int,
    connection: str | None,
    command: str,
    payload: bytes,
    schema: str | None,
    tags: str | None,
) -> None:
    source = Address(twin, connection)
    raw = bodies.incoming_request(uid, source, command, payload, schema, tags, 11, 12)
    assert json.loads(raw) == {
        "ver": 1,
        "ref": uid,
        "src": str(source),
        "cmd": command,
        "exp": 12,
        "dat": base64.b64encode(payload).decode(),
        "tag": tags,
        "ret": "msgbus.system.reply",
        "shm": schema,
        "now": 11,
    }


@given(
    reference=st.none() | TEXT,
    payload=st.binary(max_size=200),
    schema=st.none() | TEXT,
    failure=st.none() | st.builds(Failure, st.integers(0, 2**32 - 1), TEXT),
)
def test_a_program_reads_what_was_answered(
    reference: str | None, payload: bytes, schema: str | None, failure: Failure | None
) -> None:
    raw = bodies.incoming_response(reference, "7:a", payload, schema, 11, failure)
    assert json.loads(raw) == {
        "ver": 1,
        "ref": reference,
        "dat": base64.b64encode(payload).decode(),
        "src": "7:a",
        "shm": schema,
        "now": 11,
        "err": failure and {"code": failure.code, "message": failure.message},
    }


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for read in (bodies.read_request, bodies.read_response):
        try:
            read(raw)
        except BodyError as error:
            assert str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(
    st.dictionaries(st.sampled_from("ref cmd exp dat tag dst ret shm now err".split()), JSON),  # noqa: SIM905
)
def test_any_object_is_read_or_refused(fields: dict[str, Any]) -> None:
    raw = json.dumps(fields).encode()
    for read in (bodies.read_request, bodies.read_response):
        try:
            read(raw)
        except BodyError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"cmd": ""}, "cmd is missing"),
        ({"cmd": 5}, "cmd is not text"),
        ({"cmd": "x" * 257}, "cmd has 257 bytes, at most 256 are allowed"),
        ({"dst": []}, "dst is empty"),
        ({"dst": [0]}, "dst is not a list of twin ids"),
        ({"dst": [2**32]}, "dst is not a list of twin ids"),
        ({"dst": ["x"]}, "dst is not a list of twin ids"),
        ({"dst": [True]}, "dst is not a list of twin ids"),
        ({"dst": [1.5]}, "dst is not a list of twin ids"),
        ({"dst": "leave out"}, "dst is not a list of twin ids"),
        ({"dst": list(range(1, 1002))}, "dst has 1001 twins, at most 1000 are allowed"),
        ({"dat": "a"}, "dat is not base64"),
        ({"dat": "a?=="}, "dat is not base64"),
        ({"dat": 5}, "dat is not text"),
        ({"exp": -1}, "exp is not a number of seconds"),
        ({"exp": "soon"}, "exp is not a number of seconds"),
        ({"exp": float("nan")}, "exp is not a number of seconds"),
        ({"now": []}, "now is not a number of seconds"),
        ({"tag": "x" * 1025}, "tag has 1025 bytes, at most 1024 are allowed"),
        ({"shm": {}}, "shm is not text"),
    ],
)
def test_what_is_wrong_is_named_and_the_caller_is_known(
    fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BodyError) as raised:
        bodies.read_request(request(ref="mine", **fields))
    assert str(raised.value) == problem
    assert (raised.value.ret, raised.value.reference) == ("r", "mine")


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(BodyError, match="cmd is not valid Unicode"):
        bodies.read_request(b'{"cmd":"\\ud800","dst":[7],"ret":"r"}')


@pytest.mark.parametrize(
    "fields",
    [
        {"exp": "5", "now": 9.0},
        {"dst": 7},
        {"dst": ["7"]},
        {"exp": 4.1, "now": 9.9},
        {"dat": None, "tag": None, "shm": None, "ref": None},
        {"dat": "leave out"},
    ],
)
def test_forms_that_are_taken(fields: dict[str, Any]) -> None:
    found = bodies.read_request(request(**fields))
    assert found.destinations == (7,)
    assert (found.expiration_s, found.timestamp, found.payload) == (5, 9, b"")


def test_a_twin_that_is_named_twice_is_asked_twice() -> None:
    assert bodies.read_request(request(dst=[7, "8", 7])).destinations == (7, 8, 7)


@pytest.mark.parametrize("text", ["_-8=", "_-8", "/+8", "/+\n8="])
def test_base64_of_other_writers(text: str) -> None:
    assert bodies.read_request(request(dat=text)).payload == b"\xff\xef"


def test_a_request_without_a_list_wants_no_answer() -> None:
    assert bodies.read_request(request(ret="leave out")).ret == ""


def test_whoever_asked_is_known_when_an_answer_is_malformed() -> None:
    with pytest.raises(BodyError) as raised:
        bodies.read_response(b'{"ref":"u","dst":"7:x","dat":"?"}')
    assert (raised.value.reference, raised.value.destination) == ("u", Address(7, "x"))


@pytest.mark.parametrize(
    ("err", "failure"),
    [
        (None, None),
        ({"code": 255, "message": "no"}, Failure(255, "no")),
        ({"message": "no"}, Failure(500, "no")),
        ({"code": -1}, Failure(500, "")),
        ({"code": 2**32}, Failure(500, "")),
    ],
)
def test_errors_of_services(err: Any, failure: Failure | None) -> None:
    raw = json.dumps({"ref": "u", "dst": 7, "err": err}).encode()
    assert bodies.read_response(raw).failure == failure
