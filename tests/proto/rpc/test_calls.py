"""Tests of both sides of calls: with recorded calls, with each other, and rules R1 to R8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proto.mux.frames import Half
from proto.rpc.call import Abort, Action, Cancel, End, Kind, Write
from proto.rpc.caller import (
    BytesReceived,
    CallEnded,
    Caller,
    CallerEvent,
    CallFailed,
    ResultReceived,
)
from proto.rpc.errors import (
    ErrorCode,
    PublicError,
    RpcMessageError,
    RpcRemoteError,
    RpcStreamError,
    RpcTimeoutError,
)
from proto.rpc.handler import (
    Aborted,
    Called,
    Handler,
    HandlerEvent,
    InputEnded,
    MessageReceived,
)
from proto.rpc.messages import Request

MS = 1_000_000
VECTORS = {
    vector["name"]: vector
    for vector in json.loads(
        (Path(__file__).parents[2] / "interop" / "vectors" / "mux.json").read_text("utf-8")
    )["vectors"]
}


def data_of(name: str, sender: str) -> list[bytes]:
    """Return the payloads of the DATA frames that a sender sent in a recorded call on stream 0."""
    return [
        bytes.fromhex(frame["hex"])[3:]
        for frame in VECTORS[name]["frames"]
        if frame["from"] == sender and frame["type"] == "DATA"
    ]


def told(side: Caller | Handler) -> list[CallerEvent | HandlerEvent]:
    found = []
    while (event := side.next_event()) is not None:
        found.append(event)
    return found


def actions(side: Caller | Handler) -> list[Action]:
    """Return all actions to take until the other side has to read."""
    found = []
    while (action := side.next_action()) is not None:
        found.append(action)
    return found


def written(side: Caller | Handler) -> list[Any]:
    return [json.loads(each.data) for each in actions(side) if isinstance(each, Write)]


def results(caller: Caller) -> list[Any]:
    return [event.result for event in told(caller) if isinstance(event, ResultReceived)]


# --- recorded calls of the reference, our caller --------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rpc_unary", Kind.UNARY),
        ("rpc_unary_metadata", Kind.UNARY),
        ("rpc_server_stream", Kind.SERVER_STREAM),
        ("rpc_client_stream", Kind.CLIENT_STREAM),
        ("rpc_duplex", Kind.DUPLEX),
    ],
)
def test_answers_of_the_reference(name: str, kind: Kind) -> None:
    caller = Caller(kind, "m", 0)
    caller.send({})
    for data in data_of(name, "server"):
        caller.receive_data(data)
    caller.receive_end()
    *found, last = told(caller)
    wanted = VECTORS[name]["observed"]["resolved"]
    values = [event.result for event in found if isinstance(event, ResultReceived)]
    assert values == (wanted if isinstance(wanted, list) else [wanted])
    assert last == CallEnded()


@pytest.mark.parametrize(
    "name", ["rpc_error", "rpc_error_with_cause", "rpc_error_aggregate", "rpc_error_midway"]
)
def test_errors_of_the_reference(name: str) -> None:
    caller = Caller(Kind.SERVER_STREAM, "m", 0)
    caller.send({})
    for data in data_of(name, "server"):
        caller.receive_data(data)
    *_, last = told(caller)
    assert isinstance(last, CallFailed)
    cause = VECTORS[name]["observed"]["rejected"]["cause"]
    assert isinstance(last.error, RpcRemoteError)
    assert (last.error.type, str(last.error)) == (cause["class"], cause["message"])
    if name == "rpc_error_with_cause":
        inner = last.error.__cause__
        assert isinstance(inner, RpcRemoteError)
        assert inner.type == "TypeError"


def test_a_raw_call_of_the_reference() -> None:
    caller = Caller(Kind.RAW, "raw", 0)
    caller.send({"name": "h"})
    caller.send_bytes(b"RAW")
    [header] = actions(caller)
    caller.acknowledged()
    assert actions(caller) == [Write(b"RAW")]
    for data in data_of("rpc_raw", "server"):
        caller.receive_data(data)
    caller.receive_end()
    assert told(caller) == [
        ResultReceived({"header": {"name": "h"}}),
        BytesReceived(b"RAW"),
        CallEnded(),
    ]
    assert isinstance(header, Write)
    assert json.loads(header.data) == json.loads(data_of("rpc_raw", "client")[0])


# --- recorded calls of the reference, our handler -------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "params"),
    [
        ("rpc_unary", Kind.UNARY, [{"text": "hi"}]),
        ("rpc_server_stream", Kind.SERVER_STREAM, [{"n": 3}]),
        ("rpc_client_stream", Kind.CLIENT_STREAM, [{"value": 1}, {"value": 2}, {"value": 3}]),
        ("rpc_duplex", Kind.DUPLEX, [{"i": 1}, {"i": 2}]),
        ("rpc_number_id", Kind.UNARY, [{"a": 1}]),
        ("rpc_bare_request", Kind.UNARY, [{}]),
        ("rpc_whitespace", Kind.UNARY, [{"a": 1}]),
        ("rpc_header_over_frames", Kind.UNARY, [{"a": 1}]),
        ("rpc_two_messages_in_one_frame", Kind.DUPLEX, [{"value": 1}, {"value": 2}]),
        ("rpc_messages_over_frames", Kind.DUPLEX, [{"value": 1}, {"value": 2}, {"value": 3}]),
    ],
)
def test_requests_of_the_reference(name: str, kind: Kind, params: list[dict[str, Any]]) -> None:
    handler = Handler(0)
    for data in data_of(name, "client"):
        handler.receive_data(data)
    handler.receive_end()
    [called] = told(handler)
    assert isinstance(called, Called)
    assert called.request.params == params[0]
    handler.accept(kind)
    several = kind in (Kind.CLIENT_STREAM, Kind.DUPLEX)
    messages = [MessageReceived(each) for each in params] if several else []
    assert told(handler) == [*messages, InputEnded()]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("rpc_bad_json", ErrorCode.PARSE),
        ("rpc_without_method", ErrorCode.INVALID_REQUEST),
        ("rpc_empty_call", ErrorCode.MISSING_HEADER),
    ],
)
def test_r4_what_is_no_call_is_answered(name: str, code: ErrorCode) -> None:
    """An invalid call is answered with an error; the reference leaves the stream open for ever."""
    handler = Handler(0)
    for data in data_of(name, "client"):
        handler.receive_data(data)
    handler.receive_end()
    [message] = written(handler)
    assert message["error"]["code"] == code
    assert handler.is_over
    assert told(handler) == []


# --- rules ----------------------------------------------------------------------------------------


def test_r1_the_header_goes_alone() -> None:
    caller = Caller(Kind.CLIENT_STREAM, "sum", 0)
    caller.send({"value": 1})
    caller.send({"value": 2})
    caller.end()
    [header] = actions(caller)
    assert isinstance(header, Write)
    assert header.is_alone
    caller.acknowledged()
    second, end = actions(caller)
    assert isinstance(second, Write)
    assert (second.is_alone, end) == (False, End())


def test_r1_so_does_the_answer_of_a_raw_call() -> None:
    handler = Handler(0)
    handler.receive_data(b'{"method":"raw"}early')
    handler.accept(Kind.RAW)
    handler.respond({})
    handler.send_bytes(b"bytes")
    [header] = actions(handler)
    assert isinstance(header, Write)
    assert header.is_alone
    handler.acknowledged()
    assert actions(handler) == [Write(b"bytes")]
    assert told(handler) == [Called(Request("raw", {}, {})), BytesReceived(b"early")]


@pytest.mark.parametrize("kind", [Kind.UNARY, Kind.SERVER_STREAM])
def test_r2_a_handler_that_reads_no_more_has_not_failed(kind: Kind) -> None:
    caller = Caller(kind, "m", 0)
    caller.send({})
    actions(caller)
    caller.receive_failure(Half.WRITE, 0, "peer")
    caller.receive_data(b'{"result":1,"id":null}')
    caller.receive_end()
    assert told(caller) == [ResultReceived(1), CallEnded()]
    assert actions(caller) == []


def test_r3_an_error_is_read_and_the_call_ended() -> None:
    caller = Caller(Kind.DUPLEX, "m", 0)
    caller.send({})
    actions(caller)
    caller.acknowledged()
    caller.receive_data(b'{"error":{"code":-32006,"message":"no"},"id":null}')
    caller.receive_failure(Half.READ, 0, "peer")
    [failed] = told(caller)
    assert isinstance(failed, CallFailed)
    assert str(failed.error) == "no"
    assert actions(caller) == [Cancel(), End()]


def test_r3_a_handler_that_fails_says_so_and_ends() -> None:
    handler = Handler(0)
    handler.receive_data(b'{"method":"m"}')
    handler.accept(Kind.UNARY)
    handler.fail(ZeroDivisionError("secret"))
    message, *others = actions(handler)
    assert others == [Cancel(), End()]
    assert isinstance(message, Write)
    error = json.loads(message.data)["error"]
    assert error["code"] == ErrorCode.REMOTE
    assert b"secret" not in message.data
    assert error["data"]["type"] == "Error"
    assert error["data"]["data"]["stack"]


def test_r4_a_method_that_the_reference_does_not_have() -> None:
    caller = Caller(Kind.UNARY, "nosuch", 0)
    caller.send({})
    actions(caller)
    caller.receive_failure(Half.WRITE, 0, "peer")
    caller.receive_failure(Half.READ, 0, "given up")
    [failed] = told(caller)
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, RpcStreamError)


def test_r5_a_unary_call_is_ended_by_its_response() -> None:
    handler = Handler(0)
    handler.receive_data(b'{"method":"m"}')
    handler.accept(Kind.UNARY)
    handler.respond({"a": 1})
    response, end = actions(handler)
    assert isinstance(response, Write)
    assert json.loads(response.data) == {"jsonrpc": "2.0", "result": {"a": 1}, "id": None}
    assert end == End()


def test_r7_an_unknown_method_is_answered_with_data() -> None:
    handler = Handler(0)
    handler.receive_data(b'{"method":"nosuch"}')
    handler.fail(PublicError("no method nosuch", ErrorCode.METHOD_NOT_FOUND))
    [message] = written(handler)
    assert message["error"]["code"] == -32601
    assert message["error"]["data"]["message"] == "no method nosuch"


def test_r8_other_types_are_not_sent() -> None:
    with pytest.raises(ValueError, match="error type NoSuchThing is not one of"):
        PublicError("x", type="NoSuchThing")
    error = Caller(Kind.UNARY, "m", 0)
    error.send({})
    error.receive_data(b'{"error":{"code":1,"message":"m","data":"bare"},"id":null}')
    [failed] = told(error)
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, RpcRemoteError)
    assert (failed.error.type, failed.error.data) == ("", "bare")


# --- times ----------------------------------------------------------------------------------------


def test_a_caller_waits_for_its_timeout() -> None:
    caller = Caller(Kind.UNARY, "m", 5, timeout_ms=200)
    caller.send({"a": 1})
    [request] = written(caller)
    assert request["params"] == {"a": 1, "metadata": {"timeout": 200}}
    assert caller.next_timer() == 5 + 200 * MS
    caller.handle_timer(199 * MS)
    assert told(caller) == []
    caller.handle_timer(5 + 200 * MS)
    [failed] = told(caller)
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, RpcTimeoutError)
    assert "no response within 200 ms" in str(failed.error)
    assert actions(caller) == [Cancel(), Abort()]
    assert caller.next_timer() is None


def test_the_first_response_is_in_time() -> None:
    caller = Caller(Kind.SERVER_STREAM, "m", 0, timeout_ms=200)
    caller.send({})
    caller.receive_data(b'{"result":1,"id":null}')
    assert caller.next_timer() is None


@pytest.mark.parametrize(
    ("server", "method", "caller", "least"),
    [
        (None, None, None, None),
        (300, None, None, 300),
        (300, 200, None, 200),
        (300, 200, 100, 100),
        (100, None, 500, 100),
        (None, None, 0, 0),
    ],
)
def test_a_caller_may_lower_the_timeout_of_a_handler(
    server: float | None, method: float | None, caller: float | None, least: float | None
) -> None:
    handler = Handler(0, server)
    params = {"metadata": {"timeout": caller}}
    handler.receive_data(json.dumps({"method": "m", "params": params}).encode())
    handler.accept(Kind.UNARY, method)
    assert handler.next_timer() == (None if least is None else least * MS)


@pytest.mark.parametrize("value", ["5", True, -1, float("nan"), float("inf"), None, []])
def test_a_timeout_that_is_none_counts_as_infinite(value: Any) -> None:
    assert Request("m", {}, {"timeout": value}).timeout_ms is None


def test_a_handler_that_takes_too_long_is_aborted() -> None:
    handler = Handler(0, 100)
    handler.receive_data(b'{"method":"m"}')
    handler.accept(Kind.UNARY)
    told(handler)
    handler.handle_timer(100 * MS)
    assert told(handler) == [Aborted("no response within 100 ms", timed_out=True)]
    [message] = written(handler)
    assert message["error"]["code"] == ErrorCode.TIMED_OUT
    handler.respond(1)
    assert actions(handler) == []


# --- callers that vanish, bad messages ------------------------------------------------------------


@pytest.mark.parametrize("half", Half)
def test_a_caller_that_gives_up_aborts_the_work(half: Half) -> None:
    handler = Handler(0)
    handler.receive_data(b'{"method":"m"}')
    handler.accept(Kind.DUPLEX)
    told(handler)
    handler.receive_failure(half, "gone")
    handler.receive_failure(Half.READ, "gone")
    assert told(handler) == [Aborted("gone")]


def test_a_bad_message_in_the_middle_fails_the_call() -> None:
    handler = Handler(0)
    handler.receive_data(b'{"method":"m"}')
    handler.accept(Kind.DUPLEX)
    told(handler)
    handler.receive_data(b'{"method":1}')
    assert told(handler) == [Aborted("a request has no method")]
    [message] = written(handler)
    assert message["error"]["code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x", "not a JSON object"),
        (b'{"result":1,"error":{"code":1,"message":""}}', "both"),
        (b'{"error":1}', "not an object"),
        (b'{"error":{"code":"1","message":""}}', "no code"),
        (b'{"error":{"code":1}}', "no message"),
    ],
)
def test_what_is_no_response_fails_the_call(data: bytes, words: str) -> None:
    caller = Caller(Kind.DUPLEX, "m", 0)
    caller.send({})
    actions(caller)
    caller.receive_data(data)
    [failed] = told(caller)
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, RpcMessageError)
    assert words in str(failed.error)
    assert actions(caller) == [Cancel(), Abort()]


@pytest.mark.parametrize("rest", [b"x", b'{"error":{"code":1,"message":"m"}}', b'{"a":' * 70])
def test_what_follows_the_only_response_is_ignored(rest: bytes) -> None:
    caller = Caller(Kind.UNARY, "m", 0)
    caller.send({})
    caller.receive_data(b'{"result":1,"id":null}' + rest)
    assert told(caller) == [ResultReceived(1), CallEnded()]


@pytest.mark.parametrize("kind", [Kind.UNARY, Kind.CLIENT_STREAM, Kind.RAW])
def test_an_end_without_a_response(kind: Kind) -> None:
    caller = Caller(kind, "m", 0)
    caller.send({})
    caller.receive_end()
    [failed] = told(caller)
    assert isinstance(failed, CallFailed)
    assert "without a response" in str(failed.error)


def test_an_end_within_a_message() -> None:
    caller = Caller(Kind.DUPLEX, "m", 0)
    caller.send({})
    caller.receive_data(b'{"result":')
    caller.receive_end()
    [failed] = told(caller)
    assert isinstance(failed, CallFailed)
    assert "within a message" in str(failed.error)


def test_one_message_only() -> None:
    caller = Caller(Kind.UNARY, "m", 0)
    caller.send({})
    with pytest.raises(ValueError, match="UNARY sends one message"):
        caller.send({})
    with pytest.raises(ValueError, match="raw calls"):
        caller.send_bytes(b"x")
    with pytest.raises(ValueError, match="negative"):
        Caller(Kind.UNARY, "m", 0, timeout_ms=-1)
