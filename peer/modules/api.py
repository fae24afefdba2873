"""How commands are answered in a peer's own process: the interface for modules of your own.

A module owns a prefix: `Module("calc")` answers every command that begins with `calc.`, and no
queue of Redis sees them. Its handlers are coroutine functions, each for one command:

    calc = Module("calc")

    @calc.command("add")
    async def add(request: Request) -> bytes:
        return json.dumps(sum(json.loads(request.payload))).encode()

A handler returns what the asker gets, or raises CommandError for an error with a code and a text.
The peer runs handlers side by side, each in a task of its own that ends at the request's deadline;
one that waits for long must not hold anything the others need. Requests are verified and decrypted
before: `request.source` signed this.

Commands of local programs (`msgbus.system.local`) pass by the modules too: `Module.local` takes one
before it is sent. `Module.on_start` is called with the Context, by which a module sends requests
itself; `Module.on_stop` when the peer ends and no handler runs any more.

The gateway finds modules by the entry-point group `rmb.peer.modules`, and by `--module`; see
`loading.py`. The same Request, Response and CommandError are those of `peer.client`'s handlers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from proto.rmb.address import Address
from proto.rmb.bounds import DEFAULT_EXPIRATION_S, MAX_MESSAGE_BYTES
from proto.rmb.errors import CODE_OTHER, MAX_CODE

MAX_LOGGED_CHARACTERS: Final = 80
"""Of a command that somebody else chose."""

MAX_BODY_BYTES: Final = MAX_MESSAGE_BYTES - 64 * 1024
"""A payload is in one message, with its addresses, command and signature around it."""

MAX_ERROR_CHARACTERS: Final = 4096
"""Of the text of an error; what is beyond is not sent."""

JSON_SCHEMA: Final = "application/json"
"""Content type of a payload that is JSON."""


class Request(NamedTuple):
    """What another twin asks for; signed by it, and decrypted."""

    uid: str
    source: Address
    """The session an answer goes to."""
    command: str
    payload: bytes
    schema: str | None
    """Content type of the payload."""
    tags: str | None
    deadline: int
    """Unix second from which on an answer is of no use."""

    @property
    def size_bytes(self) -> int:
        """Memory it takes: its sender may make each text as large as the payload."""
        return sum(map(getsizeof, self)) + getsizeof(self.source.connection)

    def json(self) -> Any:
        """The value of a payload that is JSON; None for an empty one.

        Raises:
            CommandError: it is none; a handler may let this pass to the asker.
        """
        if not self.payload:
            return None
        try:
            return json.loads(self.payload)
        except (ValueError, RecursionError):
            raise CommandError(CODE_OTHER, "the payload is not JSON") from None


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """What a program of this host asks its peer for; it is trusted like the peer itself."""

    destinations: tuple[Address, ...]
    """Whom the request was for."""
    command: str
    payload: bytes
    schema: str | None
    tags: str | None
    deadline: int

    @property
    def size_bytes(self) -> int:
        """Memory it takes."""
        parts = (self.command, self.payload, self.schema, self.tags, self.destinations)
        return sum(map(getsizeof, parts)) + sum(map(getsizeof, self.destinations))


class Response(NamedTuple):
    """A good answer."""

    payload: bytes = b""
    schema: str | None = None


class CommandError(Exception):
    """Raised by a handler: the asker gets an error with this code and text."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _NoAnswer:
    """The type of NO_ANSWER."""


NO_ANSWER: Final = _NoAnswer()
"""Returned by a handler whose command is never answered; the asker waits until it expires."""

Answer: TypeAlias = "Response | bytes | _NoAnswer | None"
"""What a handler returns: bytes are the payload of a response, None is an empty one."""

Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]
LocalHandler: TypeAlias = Callable[[LocalRequest], Awaitable[Answer]]
_Kind = TypeVar("_Kind", Handler, LocalHandler)


class Store(Protocol):
    """What a module wants to know again after the peer was killed; small values, a few hundred."""

    async def put(self, name: str, value: bytes) -> None:
        """Keep a value under a name, in place of the one before."""

    async def remove(self, name: str) -> None:
        """Forget a value; a name that is not there is no error."""

    async def all(self) -> dict[str, bytes]:
        """Everything that is kept."""


class Context(Protocol):
    """What a peer does for its modules."""

    @property
    def twin(self) -> int:
        """The peer's own twin."""

    @property
    def store(self) -> Store:
        """Of this module alone."""

    async def call(
        self,
        twin: int | Address,
        command: str,
        payload: bytes = b"",
        *,
        timeout_s: float = DEFAULT_EXPIRATION_S,
        schema: str | None = None,
        tags: str | None = None,
        uid: str | None = None,
    ) -> Response:
        """Ask a twin and wait for its first answer.

        Args:
            twin: whom.
            command: what for.
            payload: as it is.
            timeout_s: how long to wait; the request expires then.
            schema: content type of the payload.
            tags: of the request.
            uid: of the request, and of no other that waits; None: a new one.

        Raises:
            peer.errors.CallError: there is none that can be used.
        """

    async def deliver(self, request: Request) -> None:
        """Pass a request to whoever serves its command here, as if its source had sent it."""


class Module:
    """Handlers for the commands of one prefix.

    Args:
        prefix: the part of the commands before their first dot.
        unknown: answers commands of the prefix that have no handler; None refuses them with an
            error, "unknown command: ...".
    """

    def __init__(self, prefix: str, unknown: Handler | None = None) -> None:
        if not prefix or "." in prefix:
            raise ValueError(f"module prefix {prefix!r} must be a name without a dot")
        self.prefix = prefix
        self.log = logging.getLogger(f"peer.modules.{prefix}")
        self._unknown = unknown or _refuse
        self._commands: dict[str, Handler] = {}
        self._local: dict[str, LocalHandler] = {}

    def command(self, name: str) -> Callable[[Handler], Handler]:
        """Decorates the handler of `<prefix>.<name>`.

        Raises:
            ValueError: the command has a handler already.
        """

        def add(handler: Handler) -> Handler:
            _add(self._commands, f"{self.prefix}.{name}", handler)
            return handler

        return add

    def local(self, name: str) -> Callable[[LocalHandler], LocalHandler]:
        """Decorates the handler of `<prefix>.<name>` as local programs ask for it.

        Local requests that have no handler are sent to their destination like any other.

        Raises:
            ValueError: the command has a handler already.
        """

        def add(handler: LocalHandler) -> LocalHandler:
            _add(self._local, f"{self.prefix}.{name}", handler)
            return handler

        return add

    def find(self, command: str) -> Handler:
        """Returns who answers a command of this prefix."""
        return self._commands.get(command, self._unknown)

    def find_local(self, command: str) -> LocalHandler | None:
        """Returns who takes a command of a local program; None: it is sent."""
        return self._local.get(command)

    async def on_start(self, context: Context) -> None:
        """Called once, before the first request; for subclasses."""

    async def on_stop(self) -> None:
        """Called once, after the last request; for subclasses."""


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules of a peer, by the prefixes of their commands."""

    by_prefix: Mapping[str, Module] = field(default_factory=dict)

    @classmethod
    def of(cls, *modules: Module) -> Modules:
        """Collects modules.

        Raises:
            ValueError: two have one prefix.
        """
        found: dict[str, Module] = {}
        for module in modules:
            if module.prefix in found:
                raise ValueError(f"two modules have the prefix {module.prefix!r}")
            found[module.prefix] = module
        return cls(found)

    def find(self, command: str) -> Handler | None:
        """Returns who answers a command; None: no module does."""
        module = self.by_prefix.get(command.partition(".")[0])
        return module.find(command) if module is not None and "." in command else None

    def find_local(self, command: str) -> LocalHandler | None:
        """Returns who takes a command of a local program; None: it is sent."""
        module = self.by_prefix.get(command.partition(".")[0])
        return module.find_local(command) if module is not None else None


async def answer(
    asked: Awaitable[Answer], command: str, log: logging.Logger
) -> Response | CommandError | None:
    """Runs a handler to its end and says what is to be sent; None: nothing.

    Args:
        asked: the handler, called with its request.
        command: for the log.
        log: told of what the handler did not expect; the asker learns no details.
    """
    try:
        found = await asked
        return None if isinstance(found, _NoAnswer) else _response(found)
    except CommandError as error:
        return _error(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # not the handler's own idea
        log.exception("handler of %s failed", command[:MAX_LOGGED_CHARACTERS])
        return CommandError(CODE_OTHER, "the service failed")


async def stop_module(module: Module, log: logging.Logger) -> None:
    """Ends a module; one that fails must not keep the others, or its peer, from ending."""
    try:
        await module.on_stop()
    except Exception:
        log.exception("module %s did not stop", module.prefix)


def _response(found: object) -> Response:
    """What a handler returned, as it can be sent."""
    payload, schema = found if isinstance(found, Response) else (found, None)
    if payload is None:
        payload = b""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise TypeError(f"a handler returns bytes, a Response or None, not {type(payload)}")
    if not isinstance(schema, str | None):
        raise TypeError(f"the schema of a Response is text or None, not {type(schema)}")
    if schema is not None:
        schema.encode()  # raises a ValueError for half a surrogate pair
    if len(payload) > MAX_BODY_BYTES:
        raise ValueError(f"{len(payload)} bytes returned, at most {MAX_BODY_BYTES} can be sent")
    return Response(bytes(payload), schema)


def _error(error: CommandError) -> CommandError:
    """What a handler raised, as it can be sent."""
    code, text = error.code, error.message
    if not isinstance(code, int) or not 0 <= code <= MAX_CODE:
        code = CODE_OTHER
    try:
        message = str(text)
    except Exception:
        message = "the service failed"
    return CommandError(code, message[:MAX_ERROR_CHARACTERS].encode(errors="replace").decode())


async def _refuse(request: Request) -> Answer:
    shown = request.command[:MAX_LOGGED_CHARACTERS]
    raise CommandError(CODE_OTHER, f"unknown command: {shown}")


def _add(table: dict[str, _Kind], command: str, handler: _Kind) -> None:
    if command in table:
        raise ValueError(f"command {command!r} has a handler already")
    table[command] = handler
