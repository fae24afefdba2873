"""`rmb ops` against a small server, and the requests that it refuses to send."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from peer.arguments import UsageError
from peer.cli import ops
from peer.cli.session import Session
from peer.errors import ConnectError
from peer.rpc import RpcPeer, Service, connect
from peer.rpc.site import TOKEN_VARIABLE
from relay.calls import remote
from tests.support.mux_server import mux_server

OPERATION = {"id": "do", "summary": "Do it", "dangerous": False, "stream": False}
KNOWN = [
    {"name": name, "required": False, "type": type_}
    for name, type_ in (
        ("limit", "integer"),
        ("on", "boolean"),
        ("body", "object"),
        ("w", "string"),
    )
]


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ops.add(parser)
    return parser.parse_intermixed_args(words)


async def run(described: Any, *words: str, as_json: bool = False) -> int:
    service = Service()

    @service.handler("describe")
    async def describe(_: dict[str, Any]) -> Any:
        return described

    @service.handler("do")
    async def do(_: dict[str, Any]) -> Any:
        return {"text": "a\u00a0b\u200bc"}

    async with mux_server(service.serve) as server:
        options = parsed(words[0], f"http://127.0.0.1:{server.port}", *words[1:])
        return await ops.run(options, Session(argparse.Namespace(json=as_json)))


def elsewhere(url: str, token_file: str | None) -> remote.RemoteStream:
    return remote.RemoteStream({"url": url, "token_file": token_file, "ca": None}, "any", {})


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "token")


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://a:99999", "http://a:x", "http://me:pw@a", "ftp://a", "http://a?b"],
)
async def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"^URL: ") as refused:
        await ops.run(parsed("list", url), Session(argparse.Namespace()))
    with pytest.raises(CommandError, match=r"^--url: "):
        elsewhere(url, None)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize("token", ["", " \n", "a b", "a\nb", "ä"])
async def test_a_wrong_token_is_refused(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(token, encoding="utf-8")
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    for options in ((), ("--token-file", str(file))):
        with pytest.raises(UsageError, match="the API token"):
            await ops.run(parsed("list", "http://a", *options), Session(argparse.Namespace()))
        with pytest.raises(CommandError, match="the API token"):
            elsewhere("http://a", str(file) if options else None)


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_wrong_ca_is_refused(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "ca"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=r"^--ca "):
        await ops.run(parsed("list", "https://a", "--ca", str(file)), Session(argparse.Namespace()))


@pytest.mark.parametrize(
    "pairs",
    [["limit=1_0"], ["on=maybe"], ["w=a", "w=b"], ["body=NaN"], ["body=" + "[" * 200_000]],
    ids=["digits", "boolean", "twice", "NaN", "deep"],
)
def test_a_wrong_value_is_refused(pairs: list[str]) -> None:
    with pytest.raises(UsageError):
        ops._params(pairs, KNOWN)


def test_values_have_the_type_of_their_parameter() -> None:
    found = ops._params(["limit=-10", "on=true", "w=1", 'body={"a": 1}'], KNOWN)
    assert found == {"limit": -10, "on": True, "w": "1", "body": {"a": 1}}


@pytest.mark.parametrize("described", [None, {"a": 1}, [1], [{"id": 1}], [OPERATION]])
@pytest.mark.parametrize("words", [("list",), ("call", "do")])
async def test_another_kind_of_server_is_told(described: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ConnectError, match="not an operator site"):
        await run(described, *words)


@pytest.mark.parametrize("as_json", [False, True])
async def test_piped_json_is_unchanged(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    await run([OPERATION | {"params": []}], "call", "do", as_json=as_json)
    assert json.loads(capsys.readouterr().out) == {"text": "a\u00a0b\u200bc"}


async def test_a_broken_pipe_is_not_an_error_of_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(ops, "_print", broken)
    with pytest.raises(BrokenPipeError):
        await run([OPERATION | {"params": []}], "call", "do")


async def test_without_a_terminal_the_operation_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        service = ops._confirming(parsed("call", "http://a", "kick_twin"))
        async with mux_server(None) as server:
            address = f"ws://127.0.0.1:{server.port}/"
            async with connect(address, service):
                site = RpcPeer(await server.session())
                assert await site.call("confirm", {"text": "Kick?"}, timeout_s=10) == {"ok": False}
    assert "kick_twin" in capsys.readouterr().err


async def test_a_question_can_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as terminal:
        monkeypatch.setattr("sys.stdin", stdin)
        asking = asyncio.create_task(ops._line())
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        print("y", file=terminal, flush=True)
        assert await ops._line() == "y\n"
