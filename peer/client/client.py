"""The client: `async with Client(...)`.

The interface to RMB from Python, in one object: it sends requests and notifications to other twins,
and answers theirs. `Session` does the work; `Client` is the public interface.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from peer.client.bodies import Reply
from peer.client.bounds import CLOSE_TIMEOUT_S, CONNECT_TIMEOUT_S, QUIET_S, TIMEOUT_S
from peer.client.modules import ClientContext
from peer.client.serving import ClientHandler
from peer.client.session import Session
from peer.errors import CallError, ConnectError, TwinsAwayError
from peer.identity import Identity
from peer.link import check_url
from peer.links import MakeLink
from peer.modules.api import Module, Modules, stop_module
from peer.twins import Twin, TwinCache, TwinSource, open_source
from proto.identity.signing import KeyType
from proto.rmb.address import Address, parse
from proto.rmb.bounds import MAX_CONNECTION_BYTES, MAX_EXPIRATION_S, MAX_TWIN
from proto.rmb.errors import AddressError, BoundError

logger = logging.getLogger(__name__)

Destination: TypeAlias = int | str | Address
"""Id of a twin, or an address: `7`, `"7:billing"`, `Address(7, "billing")`."""

_OWN: Final = "a new session id"


class Client:
    """A twin's session at its relays, for the duration of the `async with` block.

    Args:
        secret: the twin's mnemonic or 0x seed, or its `Identity`.
        relays: one to four websocket URLs (`wss://relay.example`). All are read; messages are sent
            through the one that worked last.
        twins: source of twins: the path of a CSV file, the http(s) URL of a relay's site, or a
            `TwinSource` of your own. Without it the chain is used, see `substrate`.
        substrate: URLs of chain nodes, used if `twins` is not given.
        sid: id of the session. The default is a new one, so that any number of clients of one twin
            work side by side. None is the session addressed by the twin's id alone; a twin's
            services listen there, and only one process at a time can use it (the gateway
            `rmb-peer` does).
        key_type: type of the signing key, "sr25519" or "ed25519".
        handlers: as for `serve`, used from the first message on.
        modules: modules of command handlers, such as those of the gateway.
        timeout: default time-out for answers, in seconds.
        connect_timeout: seconds to wait for the first relay; 0 does not wait, and messages wait
            until a relay is connected.

    Raises:
        ValueError: an argument is invalid.
        SecretError: the secret is invalid; the text does not repeat it.
    """

    def __init__(
        self,
        secret: str | Identity,
        relays: Sequence[str],
        twins: str | os.PathLike[str] | TwinSource | None = None,
        *,
        substrate: Sequence[str] = (),
        sid: str | None = _OWN,
        key_type: Literal["sr25519", "ed25519"] = "sr25519",
        handlers: Mapping[str, ClientHandler] | None = None,
        modules: Sequence[Module] = (),
        timeout: float = TIMEOUT_S,
        connect_timeout: float = CONNECT_TIMEOUT_S,
    ) -> None:
        if isinstance(secret, str):
            secret = Identity.from_secret(secret, _key_type(key_type))
        if isinstance(relays, str):
            raise ValueError("relays: a list of URLs, not one text")
        if twins is None and not substrate:
            raise ValueError("twins: give a file, the URL of a relay's site, or substrate=[...]")
        if sid is not None and len(sid.encode()) > MAX_CONNECTION_BYTES:
            raise ValueError(f"sid: at most {MAX_CONNECTION_BYTES} bytes")
        self._identity = secret
        self._relays = [check_url(each) for each in relays]
        self._twins = twins
        self._substrate = substrate
        self._sid = f"py-{secrets.token_hex(8)}" if sid is _OWN else sid
        self._handlers = dict(handlers or {})
        self._modules = Modules.of(*modules)
        self._timeout_s = check_timeout(timeout)
        self._connect_timeout_s = connect_timeout
        self._quiet_s = QUIET_S
        self._session: Session | None = None

    async def __aenter__(self) -> Self:
        """Find the own twin and sign in.

        Raises:
            ConnectError: the key belongs to no twin, or no relay accepted the connection.
            TwinsAwayError: twins cannot be looked up.
        """
        if self._session is not None:
            raise RuntimeError("the client is open already")
        cache = self._open_cache()
        try:
            own = await cache.source.by_account(self._identity.account)
            if own is None:
                raise ConnectError("no twin found on this network with given key")
            cache.put(own)
            session = Session(
                self._identity,
                own,
                self._sid,
                cache,
                self._relays,
                self._modules,
                self._make_link(Address(own.id, self._sid)),
            )
        except BaseException:
            await self._close_cache(cache)
            raise
        started: list[Module] = []
        try:
            session.service.add(self._handlers)
            session.start()
            await self._connected(session)
            self._session = session
            for module in self._modules.by_prefix.values():
                await module.on_start(ClientContext(session))
                started.append(module)
        except BaseException:
            self._session = None
            await self._end(session, started)
            raise
        # Nothing is awaited from here to the first `await` of the block: handlers that `serve`
        # adds before that are known when the first message is processed.
        session.inbox.begin()
        return self

    async def _connected(self, session: Session) -> None:
        """Wait for a relay, and log it if that takes long."""
        limit_s = self._connect_timeout_s
        if not limit_s or await session.links.connected_within(min(self._quiet_s, limit_s)):
            return
        left_s = limit_s - self._quiet_s
        if left_s > 0:
            logger.warning(
                "cannot connect to a relay yet (%s); %.0f s left", session.why_not(), left_s
            )
            if await session.links.connected_within(left_s):
                return
        raise ConnectError(f"cannot connect to a relay: {session.why_not()}")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Sign out. Without an error, sent messages get some seconds to reach a relay."""
        await self._close(CLOSE_TIMEOUT_S if error is None else 0.0)

    async def aclose(self) -> None:
        """Sign out before the end of the block, or of the hub. Further calls have no effect."""
        await self._close(CLOSE_TIMEOUT_S)

    async def _close(self, drain_s: float) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        await self._end(session, self._modules.by_prefix.values(), drain_s)

    # Requests to other twins.

    async def call(
        self,
        twin: Destination,
        command: str,
        body: Any = None,
        *,
        timeout: float | None = None,
        schema: str | None = None,
        tags: str | None = None,
    ) -> Reply:
        """Send a request to a twin and wait for its answer.

        The request is encrypted for that twin and signed. If the connection breaks meanwhile, it is
        sent again on the next one: a service that does not filter repeats may receive it twice.
        Cancelling the call stops the waiting, not the service.

        Args:
            twin: the receiver.
            command: command to call, such as "calc.add".
            body: bytes are sent unchanged, None as nothing, everything else as JSON.
            timeout: seconds to wait, at most 1800; the request expires then.
            schema: content type of the body; by default that of JSON if the body is sent as JSON.
            tags: "fail-fast" requests an immediate RelayError if the twin is not connected.

        Returns:
            The answer: `.json()` or `.payload`.

        Raises:
            RemoteError: the twin answered with an error.
            RelayError: a relay did not deliver the request.
            TooLargeError: the request is larger than the relays accept; also a RelayError.
            ExpiredError: no answer came in time; also a TimeoutError.
            UnverifiedError: the answer is not signed by that twin.
            TwinNotFoundError: the twin does not exist.
            TwinsAwayError: twins cannot be looked up.
        """
        return await self._open.call(
            to_address(twin),
            command,
            body,
            schema=schema,
            tags=tags,
            timeout_s=self._timeout(timeout),
        )

    async def notify(
        self,
        twin: Destination,
        command: str,
        body: Any = None,
        *,
        timeout: float | None = None,
        schema: str | None = None,
        tags: str | None = None,
    ) -> str:
        """Send a notification to a twin: a request whose answer is not waited for.

        Returns once there is room for it among the messages in progress; `flush` waits until it is
        at the relay.

        Args:
            twin: the receiver.
            command: command to call.
            body: as for `call`.
            timeout: seconds for which the message is valid, at most 1800.
            schema: as for `call`.
            tags: as for `call`.

        Returns:
            The message's uid.

        Raises:
            ExpiredError: there was no room in time.
            TooLargeError: the message is known to be larger than the relays accept.
            TwinNotFoundError: the twin does not exist.
            TwinsAwayError: twins cannot be looked up.
        """
        return await self._open.notify(
            to_address(twin),
            command,
            body,
            schema=schema,
            tags=tags,
            timeout_s=self._timeout(timeout),
        )

    @asynccontextmanager
    async def ask(
        self,
        twins: Collection[Destination],
        command: str,
        body: Any = None,
        *,
        timeout: float | None = None,
        schema: str | None = None,
        tags: str | None = None,
    ) -> AsyncIterator[AsyncIterator[Reply | CallError]]:
        """Send a request to several twins at once and get each answer as it arrives.

            async with client.ask([7, 8], "status") as answers:
                async for answer in answers:
                    ...

        A twin may answer more than once. Errors are yielded as values. The iterator ends when the
        request expires, or earlier when the block is left.

        Args:
            twins: the receivers; each gets the same request, once.
            command: command to call.
            body: as for `call`.
            timeout: seconds to wait for answers, at most 1800.
            schema: as for `call`.
            tags: as for `call`.

        Raises:
            ExpiredError: the requests were not sent in time.
            TooLargeError: they are known to be larger than the relays accept.
            TwinNotFoundError: a twin does not exist; no request was sent.
            TwinsAwayError: twins cannot be looked up.
        """
        asked, end = await self._open.ask(
            [to_address(each) for each in twins],
            command,
            body,
            schema=schema,
            tags=tags,
            timeout_s=self._timeout(timeout),
        )

        async def answers() -> AsyncIterator[Reply | CallError]:
            while (found := await asked.next()) is not None:
                yield found

        try:
            yield answers()
        finally:
            end()

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the relay has decided all messages sent before.

        A message is decided when it is delivered, stored for an absent twin, or refused.

        Args:
            timeout: time-out in seconds.

        Raises:
            ExpiredError: no relay confirmed the messages in time.
            TooLargeError: since the last call a message was larger than the relays accept, and no
                caller waits for its answer.
        """
        await self._open.flush(self._timeout(timeout))

    # Requests of other twins.

    def serve(self, handlers: Mapping[str, ClientHandler]) -> None:
        """Answer these commands from now on.

        A handler gets a `Request` and returns the answer: bytes are sent unchanged, None as
        nothing, everything else as JSON. It raises `CommandError` for an error with a code; any
        other exception is logged and answered with code 500. Coroutine functions run concurrently,
        each in a task that ends when its request expires; plain functions must not block.

        Call this first in the block: a command that has no handler is refused.

        Args:
            handlers: by command; that of `*` answers the commands that have no other.

        Raises:
            ValueError: a command has a handler already.
        """
        self._open.service.add(handlers)

    async def serve_forever(self) -> None:
        """Wait until cancelled while requests are answered."""
        _ = self._open
        await asyncio.get_running_loop().create_future()

    # State.

    @property
    def address(self) -> Address:
        """The own twin and session, to which answers and calls of others are addressed."""
        return self._open.own

    @property
    def connected(self) -> bool:
        """Whether any relay is connected at the moment."""
        return self._session is not None and self._session.links.connected

    @property
    def counters(self) -> Mapping[str, int]:
        """Numbers of received messages by outcome: requests, repeated, unmatched, and so on."""
        return self._open.inbox.counters

    async def twin(self, twin: int) -> Twin | None:
        """Look up a twin; return None if it does not exist.

        Raises:
            TwinsAwayError: twins cannot be looked up.
        """
        return await self._open.twins.get(twin)

    def __repr__(self) -> str:
        state = str(self._session.own) if self._session is not None else "closed"
        return f"<Client {state}>"

    @property
    def _open(self) -> Session:
        if self._session is None:
            raise RuntimeError("the client is not open: use it inside `async with Client(...)`")
        return self._session

    def _timeout(self, timeout: float | None) -> float:
        return self._timeout_s if timeout is None else check_timeout(timeout)

    async def _end(self, session: Session, modules: Iterable[Module], drain_s: float = 0.0) -> None:
        """Stop modules and sign out, even if one module fails or this call is cancelled."""
        async with AsyncExitStack() as ending:
            ending.push_async_callback(self._close_cache, session.twins)
            ending.push_async_callback(session.aclose)
            for module in reversed(list(modules)):
                ending.push_async_callback(stop_module, module, logger)
            ending.push_async_callback(session.stop_serving)
            if drain_s:
                await session.drain(drain_s)

    # Overridden by a client that shares a connection: see `peer.client.hub`.

    def _open_cache(self) -> TwinCache:
        return TwinCache(open_twins(self._twins, self._substrate))

    async def _close_cache(self, cache: TwinCache) -> None:
        await cache.aclose()

    def _make_link(self, own: Address) -> MakeLink | None:
        return None


def open_twins(
    twins: str | os.PathLike[str] | TwinSource | None, substrate: Sequence[str]
) -> TwinSource:
    """Open the source of twins; the arguments are those of `Client`.

    Raises:
        TwinsAwayError: the source does not exist.
    """
    if twins is None or isinstance(twins, str | os.PathLike):
        spec = None if twins is None else os.fspath(twins)
        try:
            return open_source(spec, substrate)
        except OSError as error:
            raise TwinsAwayError(str(error)) from None
    return twins


def _key_type(name: str) -> KeyType:
    try:
        return KeyType[name.upper()]
    except KeyError:
        raise ValueError(f"key_type {name!r:.40}: sr25519 or ed25519") from None


def to_address(destination: Destination) -> Address:
    """Return the address of a destination.

    Raises:
        ValueError: it is not a valid address of a twin.
    """
    try:
        found = parse(destination) if isinstance(destination, str) else destination
    except (AddressError, BoundError) as error:
        raise ValueError(str(error)) from None
    if isinstance(found, int):
        found = Address(found)
    if not 1 <= found.twin <= MAX_TWIN:
        raise ValueError(f"twin {found.twin}: ids are from 1 to {MAX_TWIN}")
    return found


def check_timeout(timeout: float) -> float:
    """Check a time-out, and return it.

    Raises:
        ValueError: the time-out is out of range.
    """
    if not 0 < timeout <= MAX_EXPIRATION_S:
        raise ValueError(f"timeout: above 0 and at most {MAX_EXPIRATION_S} seconds")
    return timeout
