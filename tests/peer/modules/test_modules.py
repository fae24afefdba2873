"""Modules of users: their handlers, how these are found, and their failures."""

from __future__ import annotations

import json
import logging
import sys
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from peer.client import Reply
from peer.errors import ExpiredError, RemoteError
from peer.modules.api import (
    MAX_BODY_BYTES,
    MAX_ERROR_CHARACTERS,
    NO_ANSWER,
    Answer,
    CommandError,
    LocalRequest,
    Module,
    Modules,
    Request,
    Response,
    answer,
)
from peer.modules.loading import ModuleError, load
from peer.modules.version import version_module
from proto.rmb.address import Address
from tests.peer.modules.memory import Memory, MemoryPeer

CALC = """
import json
from peer.modules.api import CommandError, Module, Request

module = Module("calc")


@module.command("add")
async def add(request: Request) -> bytes:
    return json.dumps(sum(json.loads(request.payload))).encode()


def make() -> Module:
    return Module("made")


number = 7
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "calc_of_a_user.py").write_text(CALC)
    (tmp_path / "broken_of_a_user.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "calc_of_a_user", raising=False)
    return "calc_of_a_user"


async def asked(module: Module, command: str, payload: bytes = b"", timeout_s: float = 5) -> bytes:
    memory = Memory()
    peer = await MemoryPeer(memory, 8).start(module)
    try:
        asker = MemoryPeer(memory, 7)
        return (await asker.call(8, command, payload, timeout_s=timeout_s)).payload
    finally:
        await peer.stop()


async def test_a_module_named_by_its_place(package: str) -> None:
    (module,) = load([f"{package}:module"], installed=[])
    assert await asked(module, "calc.add", b"[1, 2]") == b"3"
    (made,) = load([f"{package}:make"], installed=[])
    assert made.prefix == "made"


async def test_an_installed_module(package: str) -> None:
    point = EntryPoint("calc", f"{package}:module", "rmb.peer.modules")
    (module,) = load([f"{package}:module"], installed=[point])  # the same module named twice
    assert module.prefix == "calc"
    assert load([]) == []  # nothing of the kind is installed here


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("calc_of_a_user", "package.module:attribute"),
        (":module", "package.module:attribute"),
        ("missing_of_a_user:module", "No module named"),
        ("broken_of_a_user:module", "ZeroDivisionError"),
        ("calc_of_a_user:nothing", "no attribute"),
        ("calc_of_a_user:number", "is a int, not a Module"),
    ],
)
def test_what_can_not_be_loaded_is_told(package: str, name: str, text: str) -> None:
    with pytest.raises(ModuleError, match=text) as caught:
        load([name], installed=[])
    assert f"--module {name}" in str(caught.value)


def test_two_modules_with_one_prefix(package: str) -> None:
    point = EntryPoint("calc", f"{package}:make", "rmb.peer.modules")
    with pytest.raises(ModuleError, match="has the prefix 'made' already"):
        load([f"{package}:make.__call__"], installed=[point])
    with pytest.raises(ValueError, match="two modules"):
        Modules.of(Module("a"), Module("a"))


async def test_what_handlers_return_and_raise(caplog: pytest.LogCaptureFixture) -> None:
    module = Module("a")
    answers: dict[str, Answer] = {
        "nothing": None,
        "bytes": b"b",
        "response": Response(b"r", "text/plain"),
        "silence": NO_ANSWER,
    }
    for name, found in answers.items():

        async def handler(request: Request, found: Answer = found) -> Answer:
            return found

        module.command(name)(handler)

    @module.command("refuses")
    async def refuses(request: Request) -> Answer:
        raise CommandError(42, "no")

    @module.command("breaks")
    async def breaks(request: Request) -> Answer:
        raise ZeroDivisionError("secret")

    assert await asked(module, "a.nothing") == b""
    assert await asked(module, "a.bytes") == b"b"
    assert await asked(module, "a.response") == b"r"
    with pytest.raises(ExpiredError):
        await asked(module, "a.silence", timeout_s=0.05)
    with pytest.raises(RemoteError, match="no") as caught:
        await asked(module, "a.refuses")
    assert caught.value.code == 42
    with caplog.at_level(logging.ERROR), pytest.raises(RemoteError) as caught:
        await asked(module, "a.breaks")
    assert (caught.value.code, caught.value.message) == (500, "the service failed")
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(RemoteError, match=r"unknown command: a\.other"):
        await asked(module, "a.other")


def test_which_commands_are_a_modules() -> None:
    module = Module("calc")

    @module.local("add")
    async def add(request: LocalRequest) -> Answer:
        return None

    modules = Modules.of(module)
    assert modules.find("calc.any") is not None
    for command in ("calc", "calculator.add", "", ".", "other.add"):
        assert modules.find(command) is None
    assert modules.find_local("calc.add") is not None
    assert modules.find_local("calc.other") is modules.find_local("x.add") is None
    with pytest.raises(ValueError, match="has a handler already"):
        module.local("add")(add)
    for prefix in ("", "a.b"):
        with pytest.raises(ValueError, match="without a dot"):
            Module(prefix)


async def test_the_version() -> None:
    payload = await asked(version_module(), "rmb.version")
    assert json.loads(payload) == version("rmb-relay-platform")
    with pytest.raises(ExpiredError):
        await asked(version_module(), "rmb.other", timeout_s=0.05)


class Sloppy(NamedTuple):
    """What a handler returns or raises, and the error that its caller gets."""

    found: Any
    code: int
    message: str


@pytest.mark.parametrize(
    "sloppy",
    [
        Sloppy(5, 500, "the service failed"),  # would be five zero bytes
        Sloppy("text", 500, "the service failed"),
        Sloppy({"a": 1}, 500, "the service failed"),
        Sloppy(Response("text"), 500, "the service failed"),  # type: ignore[arg-type]
        Sloppy(Response(b"", 5), 500, "the service failed"),  # type: ignore[arg-type]
        Sloppy(bytes(MAX_BODY_BYTES + 1), 500, "the service failed"),
        Sloppy(CommandError(-1, "no"), 500, "no"),
        Sloppy(CommandError(2**32, "no"), 500, "no"),
        Sloppy(CommandError(7, "\ud800"), 7, "?"),
        Sloppy(CommandError(7, "x" * (MAX_ERROR_CHARACTERS + 1)), 7, "x" * MAX_ERROR_CHARACTERS),
        Sloppy(CommandError(7, ValueError("no")), 7, "no"),  # type: ignore[arg-type]
    ],
)
async def test_what_can_not_be_sent_is_answered_with_an_error(sloppy: Sloppy) -> None:
    """An answer that cannot be sent is replaced by an error.

    A relay ends a session that sends a message larger than its limit.
    """

    async def handler() -> Answer:
        if isinstance(sloppy.found, Exception):
            raise sloppy.found
        return sloppy.found

    found = await answer(handler(), "a.b", logging.getLogger("test"))
    assert isinstance(found, CommandError)
    assert (found.code, found.message) == (sloppy.code, sloppy.message)


async def test_what_else_is_bytes_is_a_payload() -> None:
    async def handler() -> Answer:
        return bytearray(b"x")  # type: ignore[return-value]

    assert await answer(handler(), "a.b", logging.getLogger("test")) == Response(b"x")


def test_json_that_is_nested_too_deeply_is_none() -> None:
    request = Request("uid", Address(1), "calc.add", b"[" * 100_000, None, None, 0)
    with pytest.raises(CommandError, match="is not JSON"):
        request.json()
    with pytest.raises(ValueError, match="nested too deeply"):
        Reply(request.payload, None, request.source).json()
