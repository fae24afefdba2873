"""The interface of modules, which answer commands in a peer's own process.

A module owns a prefix: `Module("calc")` answers every command that begins with `calc.`, and these
commands do not reach the Redis queues. Its handlers are coroutine functions, one for each command:

    calc = Module("calc")

    @calc.command("add")
    async def add(request: Request) -> bytes:
        return json.dumps(sum(json.loads(request.payload))).encode()

A handler returns the answer for the caller, or raises CommandError for an error with a code and a
text. The peer runs handlers concurrently, each in a task of its own that ends at the request's
deadline; a handler that waits long must not hold resources that others need. Requests are verified
and decrypted before: `request.source` is the address that signed the request.

Commands of local programs (`msgbus.system.local`) pass by the modules too: a handler of
`Module.local` gets a command before it is sent. `Module.on_start` is called with the Context, which
a module uses to send requests itself; `Module.on_stop` is called when the peer ends and no handler
runs any more.

The gateway finds modules by the entry-point group `rmb.peer.modules`, and by `--module`; see
`loading.py`. The handlers of `peer.client` use the same Request, Response and CommandError.
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
"""Maximum number of logged characters of a command that a remote caller chose."""

MAX_BODY_BYTES: Final = MAX_MESSAGE_BYTES - 64 * 1024
"""Maximum size of a payload, in bytes; its message also has addresses, command and signature."""

MAX_ERROR_CHARACTERS: Final = 4096
"""Maximum number of characters of an error text; the rest is not sent."""

JSON_SCHEMA: Final = "application/json"
"""Content type of a payload that is JSON."""


class Request(NamedTuple):
    """A verified and decrypted request of another twin."""

    uid: str
    source: Address
    """Address of the session that gets the answer."""
    command: str
    payload: bytes
    schema: str | None
    """Content type of the payload."""
    tags: str | None
    deadline: int
    """Unix second from which on an answer is useless."""

    @property
    def size_bytes(self) -> int:
        """Memory used, in bytes: the sender may make each text as large as the payload."""
        return sum(map(getsizeof, self)) + getsizeof(self.source.connection)

    def json(self) -> Any:
        """Return the value of a JSON payload; None for an empty payload.

        Raises:
            CommandError: the payload is not JSON; a handler may pass the error on to the caller.
        """
        if not self.payload:
            return None
        try:
            return json.loads(self.payload)
        except (ValueError, RecursionError):
            raise CommandError(CODE_OTHER, "the payload is not JSON") from None


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A request of a program on this host, which is trusted like the peer itself."""

    destinations: tuple[Address, ...]
    """Addresses to which the program addressed the request."""
    command: str
    payload: bytes
    schema: str | None
    tags: str | None
    deadline: int

    @property
    def size_bytes(self) -> int:
        """Memory used, in bytes."""
        parts = (self.command, self.payload, self.schema, self.tags, self.destinations)
        return sum(map(getsizeof, parts)) + sum(map(getsizeof, self.destinations))


class Response(NamedTuple):
    """A successful answer."""

    payload: bytes = b""
    schema: str | None = None


class CommandError(Exception):
    """Raised by a handler: the caller gets an error with this code and text."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _NoAnswer:
    """The type of NO_ANSWER."""


NO_ANSWER: Final = _NoAnswer()
"""Return value of a handler whose command is never answered; the caller waits until it expires."""

Answer: TypeAlias = "Response | bytes | _NoAnswer | None"
"""Return value of a handler: bytes are the payload of a response, None is an empty response."""

Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]
LocalHandler: TypeAlias = Callable[[LocalRequest], Awaitable[Answer]]
_Kind = TypeVar("_Kind", Handler, LocalHandler)


class Store(Protocol):
    """Storage for values that a module needs after a restart; for a few hundred small values."""

    async def put(self, name: str, value: bytes) -> None:
        """Store a value under a name, replacing the former one."""

    async def remove(self, name: str) -> None:
        """Remove a value; an unknown name is not an error."""

    async def all(self) -> dict[str, bytes]:
        """Return all stored values by name."""


class Context(Protocol):
    """Services of a peer for its modules."""

    @property
    def twin(self) -> int:
        """Id of the peer's own twin."""

    @property
    def store(self) -> Store:
        """Store of this module alone."""

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
        """Send a request to a twin and wait for its first answer.

        Args:
            twin: the receiver.
            command: command to call.
            payload: payload, sent unchanged.
            timeout_s: seconds to wait; the request expires then.
            schema: content type of the payload.
            tags: tags of the request.
            uid: uid of the request, not that of another waiting one; None: a new one.

        Raises:
            peer.errors.CallError: no usable answer came.
        """

    async def deliver(self, request: Request) -> None:
        """Pass a request to the service of its command here, as if its source had sent it."""


class Module:
    """Handlers of the commands with one prefix.

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
        """Decorate the handler of `<prefix>.<name>`.

        Raises:
            ValueError: the command has a handler already.
        """

        def add(handler: Handler) -> Handler:
            _add(self._commands, f"{self.prefix}.{name}", handler)
            return handler

        return add

    def local(self, name: str) -> Callable[[LocalHandler], LocalHandler]:
        """Decorate the handler of `<prefix>.<name>` for requests of local programs.

        Local requests that have no handler are sent to their destination like any other.

        Raises:
            ValueError: the command has a handler already.
        """

        def add(handler: LocalHandler) -> LocalHandler:
            _add(self._local, f"{self.prefix}.{name}", handler)
            return handler

        return add

    def find(self, command: str) -> Handler:
        """Return the handler of a command with this prefix."""
        return self._commands.get(command, self._unknown)

    def find_local(self, command: str) -> LocalHandler | None:
        """Return the handler of a local program's command; None if the command is to be sent."""
        return self._local.get(command)

    async def on_start(self, context: Context) -> None:
        """Start the module, before the first request; called once, for subclasses."""

    async def on_stop(self) -> None:
        """Stop the module, after the last request; called once, for subclasses."""


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules of a peer, by the prefixes of their commands."""

    by_prefix: Mapping[str, Module] = field(default_factory=dict)

    @classmethod
    def of(cls, *modules: Module) -> Modules:
        """Collect modules.

        Raises:
            ValueError: two modules have the same prefix.
        """
        found: dict[str, Module] = {}
        for module in modules:
            if module.prefix in found:
                raise ValueError(f"two modules have the prefix {module.prefix!r}")
            found[module.prefix] = module
        return cls(found)

    def find(self, command: str) -> Handler | None:
        """Return the handler of a command; None if no module answers it."""
        module = self.by_prefix.get(command.partition(".")[0])
        return module.find(command) if module is not None and "." in command else None

    def find_local(self, command: str) -> LocalHandler | None:
        """Return the handler of a local program's command; None if the command is to be sent."""
        module = self.by_prefix.get(command.partition(".")[0])
        return module.find_local(command) if module is not None else None


async def answer(
    asked: Awaitable[Answer], command: str, log: logging.Logger
) -> Response | CommandError | None:
    """Run a handler to its end, and return what is to be sent; None for nothing.

    Args:
        asked: the handler, called with its request.
        command: command for the log.
        log: logger for unexpected exceptions; the caller gets no details.
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
            raise  # the task is being cancelled
        log.exception("handler of %s failed", command[:MAX_LOGGED_CHARACTERS])
        return CommandError(CODE_OTHER, "the service failed")


async def stop_module(module: Module, log: logging.Logger) -> None:
    """Stop a module; a failure does not keep the other modules, or the peer, from ending."""
    try:
        await module.on_stop()
    except Exception:
        log.exception("module %s did not stop", module.prefix)


def _response(found: object) -> Response:
    """Convert the return value of a handler to a response."""
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
    """Convert an exception of a handler to an error that can be sent."""
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
