"""Tests of the payloads with which actors and twins call each other."""

from __future__ import annotations

import contextlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.identity.bounds import MAX_TWIN
from proto.lattice.errors import FormatError
from proto.lattice.twin_contract import (
    MAX_COMMAND_CHARS,
    TwinReply,
    TwinRequest,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)

ASKED = {"twin": 7, "command": "calc.add", "data": b"[1,2]"}


@given(
    st.builds(
        TwinRequest,
        st.integers(1, MAX_TWIN),
        st.text(min_size=1, max_size=40),
        st.binary(),
        st.none() | st.text(max_size=20),
        st.none() | st.text(max_size=20),
        st.integers(0, 1000),
    )
)
def test_requests_come_back(request: TwinRequest) -> None:
    assert decode_request(encode_request(request)) == request
    reply = TwinReply(request.data, request.schema)
    assert decode_reply(encode_reply(reply)) == reply


def test_what_other_encoders_write() -> None:
    expected = TwinRequest(7, "calc.add", b"[1,2]")
    more = {**ASKED, "session": None, "timeoutMs": None, "other": [1]}
    for asked in (ASKED, more, {**ASKED, "data": "[1,2]"}, {**ASKED, "data": list(b"[1,2]")}):
        assert decode_request(msgpack.packb(asked)) == expected
    for nothing in (b"", b"\xc0", msgpack.packb({})):
        assert decode_reply(nothing) == TwinReply()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("twin", 0),
        ("twin", MAX_TWIN + 1),
        ("twin", True),
        ("twin", 7.0),
        ("twin", None),
        ("command", ""),
        ("command", "x" * (MAX_COMMAND_CHARS + 1)),
        ("command", b"\xff"),
        ("command", None),
        ("data", None),
        ("data", [256]),
        ("data", ["a"]),
        ("data", {}),
        ("session", "x" * 129),
        ("session", 7),
        ("timeoutMs", -1),
        ("timeoutMs", 10**9),
    ],
)
def test_fields_out_of_bounds(field: str, value: Any) -> None:
    with pytest.raises(FormatError, match=rf"^{field}: must be") as caught:
        decode_request(msgpack.packb({**ASKED, field: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x93\x01", b"\xdf\xff\xff\xff\xff", b"\x91" * 2000 + b"\xc0", b"\x07"],
)
def test_what_is_no_map(data: bytes) -> None:
    with pytest.raises(FormatError, match="the payload is not"):
        decode_request(data)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with contextlib.suppress(FormatError):
            decode(data)
