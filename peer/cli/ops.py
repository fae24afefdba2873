"""`rmb ops`: call the operations of a relay's operator site from anywhere."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from peer.arguments import UsageError, at_home
from peer.cli.inputs import add_timeout, check_json
from peer.cli.output import printable
from peer.cli.session import Session
from peer.errors import ConnectError
from peer.mux import ConnectionEndedError, StreamFailedError
from peer.rpc import RpcError, RpcPeer, Service, connect
from peer.rpc.site import calls_url, read_token, trusting

ANSWER_S: Final = 30.0
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
FEW: Final = 20
"""Maximum number of listed operations for which the parameters are shown too."""
FOLLOWED: Final = {
    "alarms": "followAlarms",
    "counters": "followCounters",
    "log": "followLog",
    "trace": "followTrace",
}

READS: Final[tuple[str, ...]] = ()
EPILOG: Final = """\
examples:
  rmb ops list https://relay.example.com:8081                   # all operations, one per line
  rmb ops list https://relay.example.com:8081 session           # operations that contain this word
  rmb ops call https://relay.example.com:8081 list_sessions twin=7 limit=10
  rmb ops call https://relay.example.com:8081 kick_twin twin=7 body='{"reason": "test"}'
  rmb ops follow https://relay.example.com:8081 alarms          # one JSON object per line
  rmb ops follow https://relay.example.com:8081 log worker=3f9a0c7e21b4

Operations have the names, parameters and permissions of the REST API. The API token comes from
--token-file or from the variable RMB_TOKEN. Operations that delete data or disconnect others ask
for confirmation; --yes confirms. `body` is JSON, or @FILE for a file with JSON. `follow` takes one
of: alarms; counters; log worker=BOOT_ID; trace trace=ID.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("action", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument(
        "url", metavar="URL", help="operator site: https://host or http://host:port"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="list: text to find; call: operation and name=value; follow: see below",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="file that contains only the API token"
    )
    parser.add_argument(
        "--ca", metavar="FILE", help="CA certificates to trust instead of the system's"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_timeout(parser, ANSWER_S, "an answer")


async def run(options: argparse.Namespace, session: Session) -> int:
    """Run an action.

    Raises:
        UsageError: an argument is invalid.
        ConnectError: the site cannot be used, or refused the call.
    """
    try:
        url = calls_url(options.url)
    except ValueError as error:
        raise UsageError(f"URL: {error}") from None
    try:
        headers = {"Authorization": f"Bearer {read_token(options.token_file)}"}
        tls = trusting(options.ca)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        async with connect(url, _confirming(options), tls=tls, headers=headers) as peer:
            await _ACTIONS[options.action](peer, options, session.json)
    except (ConnectionEndedError, StreamFailedError, RpcError) as error:
        raise ConnectError(printable(str(error))) from error
    return 0


def _confirming(options: argparse.Namespace) -> Service:
    """Return the service that answers the site's requests for confirmation."""
    service = Service()

    @service.handler("confirm")
    async def confirm(params: dict[str, Any]) -> dict[str, bool]:
        if options.yes:
            return {"ok": True}
        if not sys.stdin.isatty():
            name = printable(options.words[0]) if options.words else options.action
            print(f"rmb: {name}: add --yes to confirm without a terminal", file=sys.stderr)
            return {"ok": False}
        print(
            f"{printable(str(params.get('text', '')))}\nContinue? [y/N] ", end="", file=sys.stderr
        )
        sys.stderr.flush()
        answer = await _line()
        return {"ok": answer.strip().lower() in ("y", "yes")}

    return service


async def _line() -> str:
    """Read a line without a thread: a thread that waits for input would delay the program's end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()


async def _described(peer: RpcPeer, timeout_s: float) -> list[dict[str, Any]]:
    """Return the operations of the site.

    Raises:
        ConnectError: the server is of another kind.
    """
    found = await peer.call("describe", timeout_s=timeout_s)
    if not isinstance(found, list) or not all(map(_is_operation, found)):
        raise ConnectError("the server is not an operator site: unknown answer to `describe`")
    return found


def _is_operation(value: Any) -> bool:
    return _has(
        value, {"id": str, "summary": str, "dangerous": bool, "stream": bool, "params": list}
    ) and all(_has(each, {"name": str, "required": bool, "type": str}) for each in value["params"])


def _has(value: Any, fields: Mapping[str, type]) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name), type_) for name, type_ in fields.items()
    )


async def _list(peer: RpcPeer, options: argparse.Namespace, as_json: bool) -> None:
    found = await _described(peer, options.timeout)
    words = [word.lower() for word in options.words]
    found = [
        each
        for each in found
        if all(word in f"{each['id']} {each['summary']}".lower() for word in words)
    ]
    if as_json:
        print(json.dumps(found))
        return
    width = max((len(each["id"]) for each in found), default=0)
    for each in sorted(found, key=lambda each: str(each["id"])):
        params = " ".join(_shown(param) for param in each["params"])
        print(printable(f"{each['id']:<{width}}  {each['summary']}"))
        if params and len(found) <= FEW:
            print(printable(f"{'':<{width}}  {params}"))


def _shown(param: Mapping[str, Any]) -> str:
    return f"{param['name']}=" if param["required"] else f"[{param['name']}=]"


async def _call(peer: RpcPeer, options: argparse.Namespace, as_json: bool) -> None:
    if not options.words:
        raise UsageError("OPERATION is missing; `rmb ops list URL` shows them")
    name, *pairs = options.words
    described = {each["id"]: each for each in await _described(peer, options.timeout)}
    operation = described.get(name)
    if operation is None:
        near = difflib.get_close_matches(name, described, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; `rmb ops list URL` shows them"
        raise UsageError(f"unknown operation {printable(name):.60}{hint}")
    params = _params(pairs, operation["params"])
    metadata = {"confirm": True}
    if operation["stream"]:
        async for item in peer.stream(name, params, metadata=metadata):
            _print(item, True)
        return
    timeout_s = None if operation["dangerous"] else options.timeout  # the user may be asked
    _print(await peer.call(name, params, timeout_s=timeout_s, metadata=metadata), as_json)


async def _follow(peer: RpcPeer, options: argparse.Namespace, as_json: bool) -> None:
    if not options.words or options.words[0] not in FOLLOWED:
        raise UsageError(f"follow: must be one of {', '.join(FOLLOWED)}")
    name, *pairs = options.words
    async for item in peer.stream(FOLLOWED[name], _params(pairs, ())):
        _print(item, True)


def _params(pairs: Sequence[str], known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Parse parameters of the form `name=value`.

    Raises:
        UsageError: one does not have that form, or its value does not have its type.
    """
    types = {each["name"]: each["type"] for each in known}
    params: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{printable(pair):.60}: must be name=value")
        if known and name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            names = ", ".join(types) or "none"
            hint = f"; did you mean {near[0]}?" if near else f" (known: {names})"
            raise UsageError(f"unknown parameter {printable(name):.60}{hint}")
        if name in params:
            raise UsageError(f"{printable(name):.60}: is given twice")
        params[name] = _value(name, text, types.get(name, "string"))
    return params


def _value(name: str, text: str, type_: str) -> Any:
    if name == "body":
        if text.startswith("@"):
            try:
                text = Path(at_home(text[1:])).read_text(encoding="utf-8")
            except (OSError, UnicodeError) as error:
                raise UsageError(f"body: {text[1:]}: {error}") from None
        if type_ == "string":
            return text
        try:
            check_json(text.encode())
            return json.loads(text)
        except RecursionError:
            raise UsageError("body: invalid JSON: nested too deeply") from None
        except ValueError as error:
            raise UsageError(f"body: invalid JSON: {error}") from None
    if type_ == "integer":
        if not _INTEGER.fullmatch(text):
            raise UsageError(f"{name}: must be a whole number of at most 19 digits")
        return int(text)
    if type_ == "boolean":
        if text not in ("true", "false"):
            raise UsageError(f"{name}: must be true or false")
        return text == "true"
    return text


def _print(value: Any, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        print(json.dumps(value), flush=True)
    else:
        print(printable(json.dumps(value, indent=2, ensure_ascii=False)), flush=True)


_ACTIONS: Final = {"list": _list, "call": _call, "follow": _follow}
