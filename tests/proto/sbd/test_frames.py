"""Tests of messages against those that the reference sent and accepted."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.sbd import frames
from proto.sbd.bounds import KEY_BYTES, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES
from proto.sbd.errors import FrameError, KeyFormatError, MessageSizeError
from tests.interop.recorded import recorded_sbd

VECTORS = recorded_sbd()
KEYS = {each["name"]: bytes.fromhex(each["public_key"]) for each in VECTORS["keys"]}


def encoded(vector: dict[str, Any]) -> bytes | None:
    match vector["type"]:
        case "lbrt":
            return frames.limit_byte_nanos(vector["byte_nanos"])
        case "lidl":
            return frames.limit_idle(vector["millis"])
        case "areq":
            return frames.auth_request(bytes.fromhex(vector["nonce"]))
        case "ares":
            signature = next(
                each["signature"]
                for each in VECTORS["signatures"]
                if (each["key"], each["nonce"]) == (vector["key"], vector["nonce"])
            )
            return frames.auth_response(bytes.fromhex(signature))
        case "srdy":
            return frames.READY
        case "keep":
            return frames.KEEP_ALIVE
    return None


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda vector: vector["type"])
def test_messages(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["message"])
    made = encoded(vector)
    assert made in (message, None)
    match vector["type"]:
        case "lbrt":
            assert frames.parse_from_server(message) == frames.LimitByteNanos(vector["byte_nanos"])
        case "lidl":
            assert frames.parse_from_server(message) == frames.LimitIdle(vector["millis"])
        case "areq":
            nonce = bytes.fromhex(vector["nonce"])
            assert frames.parse_from_server(message) == frames.AuthRequest(nonce)
        case "ares":
            assert frames.parse_from_client(message) == frames.AuthResponse(message[32:])
        case "srdy":
            assert frames.parse_from_server(message) == frames.Ready()
        case "keep":
            assert frames.parse_from_client(message) == frames.KeepAlive()
        case "unknown":
            name = vector["command"].encode()
            assert frames.parse_from_client(message) == frames.Unknown(name)
            assert frames.parse_from_server(message) == frames.Unknown(name)


@pytest.mark.parametrize("vector", VECTORS["forwards"], ids=lambda each: each["payload"] or "empty")
def test_forwards(vector: dict[str, Any]) -> None:
    payload = bytes.fromhex(vector["payload"])
    sent, delivered = bytes.fromhex(vector["sent"]), bytes.fromhex(vector["delivered"])
    assert frames.forward(KEYS[vector["to"]], payload) == sent
    assert frames.parse_from_client(sent) == frames.Forward(KEYS[vector["to"]], payload)
    assert frames.forward(KEYS[vector["from"]], payload) == delivered
    assert frames.parse_from_server(delivered) == frames.Forward(KEYS[vector["from"]], payload)


def test_a_payload_has_a_bound() -> None:
    assert len(frames.forward(KEYS["A"], bytes(MAX_PAYLOAD_BYTES))) == MAX_MESSAGE_BYTES
    with pytest.raises(MessageSizeError, match="19969 bytes is too large, limit: 19968"):
        frames.forward(KEYS["A"], bytes(MAX_PAYLOAD_BYTES + 1))


@pytest.mark.parametrize("vector", VECTORS["server_parse"], ids=lambda each: each["message"][56:64])
def test_what_a_server_reads(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["message"])
    if vector["after_srdy"] == "drop" and len(message) != 96:
        with pytest.raises(FrameError):
            frames.parse_from_client(message)
        return
    kind = type(frames.parse_from_client(message))
    assert (
        kind
        is {
            "keepalive": frames.KeepAlive,
            "ignore": frames.Unknown,
            "forward": frames.Forward,
            "drop": frames.AuthResponse,  # well-formed, but the second one
        }[vector["after_srdy"]]
    )


@pytest.mark.parametrize("size", [35, 37, 32, 0, 31, MAX_MESSAGE_BYTES + 1])
@pytest.mark.parametrize("header", [frames.LIMIT_BYTE_NANOS, frames.LIMIT_IDLE_MS])
def test_a_client_checks_lengths(header: bytes, size: int) -> None:
    with pytest.raises(FrameError):
        frames.parse_from_server(header.ljust(size, b"\0")[:size])


@pytest.mark.parametrize("vector", VECTORS["paths"], ids=lambda each: each["case"])
def test_paths(vector: dict[str, Any]) -> None:
    segment = unquote(vector["path"][1:].partition("?")[0], errors="surrogateescape")
    if vector["status"] == 101:
        key = frames.key_of_path(segment)
        assert f"/{frames.path_of_key(key)}" == f"/{segment}"
    else:
        with pytest.raises(KeyFormatError):
            frames.key_of_path(segment)


@given(st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES))
def test_any_key_has_a_path(key: bytes) -> None:
    assert frames.key_of_path(frames.path_of_key(key)) == key


@given(st.text(max_size=60))
def test_any_path_is_a_key_or_is_refused(segment: str) -> None:
    with contextlib.suppress(KeyFormatError):
        assert frames.path_of_key(frames.key_of_path(segment)) == segment


@given(st.one_of(st.binary(max_size=120), st.binary(max_size=80).map(frames.ZEROS.__add__)))
def test_any_bytes_are_a_message_or_are_refused(data: bytes) -> None:
    for parse in (frames.parse_from_client, frames.parse_from_server):
        with contextlib.suppress(FrameError):
            frame = parse(data)
            assert isinstance(frame, frames.Forward) == (not data.startswith(frames.ZEROS))
