"""Tests of one connection: time-outs, bounds, order, and only declared errors."""

from __future__ import annotations

import json
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import ServerConnection

from chain import bounds
from chain.errors import NodeError, NodeSilentError, RpcError, StateDiscardedError
from chain.rpc import Connection, TextSocket
from tests.chain.scripted_node import Answer, result, scripted_node
from tests.support.certificates import make_certificate
from tests.support.redis_servers import free_port

Request = dict[str, Any]


def _says(text: str) -> Answer:
    return lambda websocket, request: websocket.send(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no JSON", "the answer is not JSON"),
        ("[" * 100_000, "the answer is not JSON"),
        ("9" * 5000, "the answer is not JSON"),
        ("[1]", "not a JSON object"),
        ('{"id": 7, "result": 1}', "an answer nobody asked for"),
        ('{"id": null, "result": 1}', "an answer nobody asked for"),
        ('{"id": [], "result": 1}', "an answer nobody asked for"),
    ],
    ids=lambda text: text[:20],
)
def test_nonsense_ends_the_connection(text: str, problem: str) -> None:
    with scripted_node(_says(text)) as url:
        connection = Connection(url)
        with pytest.raises(NodeError, match=problem):
            connection.call("system_chain")
        assert not connection.usable
        with pytest.raises(NodeError, match="is closed"):
            connection.call("system_chain")
        connection.close()


def test_an_error_of_the_node_leaves_the_connection_good() -> None:
    errors: list[Any] = [
        {"code": -32601, "message": "Method not found"},
        {"code": 4003, "message": "Client error", "data": "State already discarded for 0x00"},
        "odd",
        {"code": "odd"},
        {"code": 1, "message": "long " * 1000 + "\n\x1b"},
    ]

    def answer(websocket: ServerConnection, request: Request) -> None:
        if errors:
            websocket.send(json.dumps({"id": request["id"], "error": errors.pop(0)}))
        else:
            result(websocket, request, "fine")

    with scripted_node(answer) as url:
        connection = Connection(url)
        with pytest.raises(RpcError, match=r"^first: Method not found \(code -32601\)$") as caught:
            connection.call("first")
        assert caught.value.code == -32601
        with pytest.raises(StateDiscardedError):
            connection.call("second")
        for _ in range(2):
            with pytest.raises(RpcError, match=r"odd|no reason given"):
                connection.call("third")
        with pytest.raises(RpcError) as caught:
            connection.call("fourth")
        assert len(caught.value.detail) <= 200
        assert caught.value.detail.isprintable()
        assert connection.call("fifth") == "fine"
        assert connection.usable
        connection.close()


def test_answers_are_told_apart_whatever_their_order() -> None:
    waiting: list[Request] = []

    def answer(websocket: ServerConnection, request: Request) -> None:
        waiting.append(request)
        if len(waiting) == 3:
            for each in reversed(waiting):
                result(websocket, each, each["params"])

    with scripted_node(answer) as url:
        connection = Connection(url)
        assert connection.call_many([("x", [n]) for n in range(3)]) == [[0], [1], [2]]
        connection.close()


def test_many_calls_go_out_some_at_a_time() -> None:
    under_way = most = 0

    def answer(websocket: ServerConnection, request: Request) -> None:
        result(websocket, request, request["params"][0])

    with scripted_node(answer) as url:
        connection = Connection(url)
        send = connection.send_text

        def counting(text: str) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            send(text)

        receive = connection.receive_answer

        def received() -> Any:
            nonlocal under_way
            answer = receive()
            under_way -= 1
            return answer

        connection.send_text = counting  # type: ignore[method-assign]
        connection.receive_answer = received  # type: ignore[method-assign]
        assert connection.call_many([("x", [n]) for n in range(100)]) == list(range(100))
        assert most == bounds.MAX_IN_FLIGHT
        connection.close()


def test_a_silent_node_is_left_in_time() -> None:
    with scripted_node(lambda websocket, request: None) as url:
        connection = Connection(url)
        connection.limit(0.2)
        start = time.monotonic()
        with pytest.raises(NodeSilentError, match="no answer in time"):
            connection.call("system_chain")
        connection.close()
        assert 0.2 <= time.monotonic() - start < 2
        assert not connection.usable


def test_a_limit_holds_for_all_calls_together() -> None:
    def answer(websocket: ServerConnection, request: Request) -> None:
        time.sleep(0.05)
        result(websocket, request, None)

    with scripted_node(answer) as url:
        connection = Connection(url)
        connection.limit(0.3)
        with pytest.raises(NodeSilentError):
            for _ in range(100):
                connection.call("x")
        connection.close()


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_MESSAGE_BYTES", 1000)
    with scripted_node(_says("x" * 1001)) as url:
        connection = Connection(url)
        with pytest.raises(NodeError, match=r"1001 bytes|too big|exceeds"):
            connection.call("system_chain")
        connection.close()


def test_a_node_that_goes_away() -> None:
    with scripted_node(lambda websocket, request: websocket.close()) as url:
        connection = Connection(url)
        with pytest.raises(NodeError, match=r"received 1000 \(OK\)"):
            connection.call("system_chain")
        connection.close()


def test_nobody_listens() -> None:
    with pytest.raises(NodeError, match="refused"):
        Connection(f"ws://127.0.0.1:{free_port()}")


def test_something_listens_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(NodeSilentError, match=r"no connection within 0\.2 s"):
            Connection(url, timeout_s=0.2)
        assert time.monotonic() - start < 2


def test_a_certificate_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    with scripted_node(lambda w, request: result(w, request, "fine"), tls) as url:
        with pytest.raises(NodeError, match="certificate verify failed"):
            Connection(url)
        with pytest.raises(NodeError):
            Connection(url.replace("wss:", "ws:"), timeout_s=5)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        connection = Connection(url)
        assert connection.call("x") == "fine"
        connection.close()


def test_notifications_are_kept_apart_from_answers() -> None:
    def answer(websocket: ServerConnection, request: Request) -> None:
        if request["method"] == "subscribe":
            result(websocket, request, "s1")
        else:
            # More notifications than are kept, some of unknown subscriptions, precede the answer.
            for number in range(bounds.MAX_KEPT_NOTIFICATIONS + 10):
                for subscription in ("s1", "other", None):
                    params = {"subscription": subscription, "result": number}
                    websocket.send(json.dumps({"method": "told", "params": params}))
            websocket.send('{"method": "odd"}')
            result(websocket, request, "answer")

    with scripted_node(answer) as url:
        connection = Connection(url)
        subscription = connection.subscribe("subscribe")
        assert connection.call("x") == "answer"
        told = [connection.notification(subscription, 1) for _ in range(64)]
        assert told == list(range(10, 74))
        assert connection.notification(subscription, 0.01) is None
        assert connection.usable
        # The other library on the same socket receives only its own answers.
        text_socket = TextSocket(connection)
        text_socket.send('{"id": 1, "method": "x", "params": []}')
        assert json.loads(text_socket.recv())["result"] == "answer"
        text_socket.close()
        assert connection.notification(subscription, 0) == 10
        connection.close()


def test_subscriptions_are_bounded_and_named() -> None:
    ids: list[Any] = [None, *range(20)]

    def answer(websocket: ServerConnection, request: Request) -> None:
        result(websocket, request, ids.pop(0))

    with scripted_node(answer) as url:
        connection = Connection(url)
        with pytest.raises(NodeError, match="no subscription id"):
            connection.subscribe("subscribe")
        connection.close()
        connection = Connection(url)
        for _ in range(bounds.MAX_SUBSCRIPTIONS):
            connection.subscribe("subscribe")
        with pytest.raises(ValueError, match="more than 8 subscriptions"):
            connection.subscribe("subscribe")
        connection.close()
