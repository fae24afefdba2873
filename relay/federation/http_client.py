"""Requests to partner relays: kept connections, no redirects, bounded answers, TLS verified.

One client per process holds the connections to all relays, in a pool for each. It has no cookies,
proxies, compression or redirects that would have to be turned off: a request is a POST with the
given headers, and of an answer it reads the status, two headers, and as much of the body as the
caller needs.

A general HTTP client takes 140 us for a request, ten times as long as this one, and twice the time
of everything else that an outgoing message in the single form needs
(docs/decisions/009-outgoing-federation.md).
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Final, NamedTuple

from proto.federation.batch import OFFER, OFFER_HEADER
from proto.federation.domains import DomainError, Place, parse
from relay.federation.http_connection import Answer, HttpConnection
from relay.federation.resolver import ANYBODY, Asker, PublicResolver, ResolverFull

log = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 4.0
"""Seconds after which an unused connection is closed. Usual servers close theirs after 5 s or more,
and a request that meets their closing has to be repeated."""
NEXT_ADDRESS_S: Final = 0.25
"""Seconds until the next address of a name is tried in parallel with those before it (RFC 8305)."""
MAX_RETRY_AFTER_S: Final = 3600.0
MAX_REASON_CHARS: Final = 120

_OFFER_HEADER: Final = OFFER_HEADER.lower().encode()
_OFFER: Final = OFFER.encode()
_PORTS: Final = {"http": 80, "https": 443}


class Reply(NamedTuple):
    """The answer to a request.

    Attributes:
        status: HTTP status.
        retry_after_s: seconds the relay asks to wait; None if it sends no such header.
        offers_batch: whether the relay takes the batch form.
        body: at most as many bytes as were asked for, and one more.
    """

    status: int
    retry_after_s: float | None
    offers_batch: bool
    body: bytes


class Unanswered(Exception):
    """There was no answer to a request.

    Attributes:
        sent: whether the request may have arrived.
        timed_out: whether a time-out expired.
        not_tried: whether the cause is local, so that it does not count as a failure of the relay.
    """

    def __init__(
        self, text: str, *, sent: bool, timed_out: bool = False, not_tried: bool = False
    ) -> None:
        super().__init__(text[:MAX_REASON_CHARS])
        self.sent = sent
        self.timed_out = timed_out
        self.not_tried = not_tried


Replied = Callable[[Reply | Unanswered], None]


class _Pool:
    """The unused connections to one relay, the last used at the right end."""

    __slots__ = ("idle", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.idle: deque[HttpConnection] = deque()


class HttpClient:
    """Posts requests to relays by domain. The caller limits how many are in flight."""

    def __init__(
        self,
        resolver: PublicResolver,
        *,
        scheme: str,
        connect_timeout_s: float,
        ca_file: str = "",
    ) -> None:
        """
        Args:
            resolver: decides which addresses may be connected to.
            scheme: `https` or `http`.
            connect_timeout_s: seconds that establishing a connection may take.
            ca_file: file of certificates to trust instead of the system's.
        """
        self._loop = asyncio.get_running_loop()
        self._resolver = resolver
        self._port = _PORTS[scheme]
        self._connect_timeout_s = connect_timeout_s
        self._tls: ssl.SSLContext | None = None
        if scheme == "https":
            self._tls = ssl.create_default_context(cafile=ca_file or None)
        self._pools: dict[str, _Pool] = {}
        self._busy: set[HttpConnection] = set()  # with a request in flight

    async def post(
        self,
        domain: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        answer_bytes: int = 0,
        asker: Asker = ANYBODY,
    ) -> Reply:
        """Send one request.

        Args:
            domain: domain of the relay.
            path: path of the request.
            headers: headers of the request; names and values are not escaped.
            body: body of the request.
            timeout_s: seconds for everything, including the connection.
            answer_bytes: number of bytes needed of the answer's body.
            asker: caller that a look-up of the domain is attributed to.

        Raises:
            Unanswered: there was no answer, or an invalid one.
        """
        connection: HttpConnection | None = None
        try:
            connection = self._kept(domain)
            if connection is None:
                began = self._loop.time()
                async with asyncio.timeout(timeout_s):
                    connection = await self._connect(self._pool(domain).place, asker)
                timeout_s -= self._loop.time() - began
            opening = request_opening(domain, path, headers)
            answered: asyncio.Future[Reply | Unanswered] = self._loop.create_future()
            self._request(
                *(domain, connection, opening, body, timeout_s, answer_bytes),
                lambda reply: None if answered.done() else answered.set_result(reply),
            )
            reply = await answered
        except TimeoutError as error:
            raise Unanswered("no connection in time", sent=False, timed_out=True) from error
        except ResolverFull as error:
            raise Unanswered(str(error), sent=False, not_tried=True) from error
        except (DomainError, OSError) as error:
            raise Unanswered(f"no connection: {_reason(error)}", sent=False) from error
        except BaseException:
            if connection is not None:
                self._end(connection)
            raise
        if isinstance(reply, Unanswered):
            raise reply
        return reply

    def post_at_once(
        self, domain: str, opening: bytes, body: bytes, timeout_s: float, replied: Replied
    ) -> bool:
        """Send one request on a kept connection, without reading the body of the answer.

        No task or future is created: they would take longer than all the rest of a small request.

        Args:
            domain: domain of the relay.
            opening: see `request_opening`.
            body: body of the request.
            timeout_s: seconds to wait for the answer.
            replied: called once, after this method has returned; never after `close`.

        Returns:
            Whether there was a connection; if not, nothing is sent.
        """
        connection = self._kept(domain)
        if connection is None:
            return False
        self._request(domain, connection, opening, body, timeout_s, 0, replied)
        return True

    def _request(
        self,
        domain: str,
        connection: HttpConnection,
        opening: bytes,
        body: bytes,
        timeout_s: float,
        answer_bytes: int,
        replied: Replied,
    ) -> None:
        def came(outcome: Answer | Exception) -> None:
            if connection not in self._busy:
                return  # closed meanwhile
            self._busy.discard(connection)
            if connection.reusable:
                connection.idle_since = self._loop.time()
                self._pool(domain).idle.append(connection)
            else:
                connection.close()
            replied(_reply(outcome) if isinstance(outcome, Answer) else _unanswered(outcome))

        self._busy.add(connection)
        head = b"%bContent-Length: %d\r\n\r\n" % (opening, len(body))
        connection.request(head, body, answer_bytes, timeout_s, came)

    def tidy(self) -> None:
        """Close connections that were not used lately; to be called regularly."""
        oldest = self._loop.time() - KEEP_ALIVE_S
        for domain, pool in list(self._pools.items()):
            while pool.idle and pool.idle[0].idle_since < oldest:
                pool.idle.popleft().close()
            if not pool.idle:
                del self._pools[domain]

    async def close(self) -> None:
        """Close all connections."""
        for connection in list(self._busy):
            self._end(connection)
        for pool in self._pools.values():
            for connection in pool.idle:
                connection.close()
        self._pools.clear()
        await self._resolver.close()
        await asyncio.sleep(0)  # the transports end in the next turn of the loop

    def _end(self, connection: HttpConnection) -> None:
        self._busy.discard(connection)
        connection.close()

    def _pool(self, domain: str) -> _Pool:
        pool = self._pools.get(domain)
        if pool is None:
            place = parse(domain)
            self._resolver.check(place.host)
            pool = self._pools[domain] = _Pool(place)
        return pool

    def _kept(self, domain: str) -> HttpConnection | None:
        """Return the most recently used connection to a relay that is still usable, if any."""
        pool = self._pools.get(domain)
        if pool is None:
            return None
        idle, oldest = pool.idle, self._loop.time() - KEEP_ALIVE_S
        while idle:
            connection = idle.pop()
            if connection.open and connection.idle_since >= oldest:
                return connection
            connection.close()
        return None

    async def _connect(self, place: Place, asker: Asker) -> HttpConnection:
        """Connect to the first address of a name that accepts a connection."""
        async with asyncio.timeout(self._connect_timeout_s):
            addresses = await self._resolver.resolve(place.host, place.port or self._port, asker)
            if len(addresses) == 1:
                return await self._open(place, addresses[0])
            return await self._race(place, deque(_alternating(addresses)))

    async def _race(self, place: Place, addresses: deque[str]) -> HttpConnection:
        """Try addresses until one accepts a connection; a silent one does not delay the others."""
        failure: BaseException = OSError("no address")
        tries: set[asyncio.Task[HttpConnection]] = set()
        try:
            while addresses or tries:
                if addresses:
                    tries.add(self._loop.create_task(self._open(place, addresses.popleft())))
                done, _ = await asyncio.wait(
                    tries,
                    timeout=NEXT_ADDRESS_S if addresses else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    tries.discard(task)
                    error = task.exception()
                    if error is None:
                        return task.result()
                    failure = error
        finally:
            for task in tries:
                task.cancel()
            for late in await asyncio.gather(*tries, return_exceptions=True):
                if isinstance(late, HttpConnection):
                    late.close()
        raise failure

    async def _open(self, place: Place, address: str) -> HttpConnection:
        connection = HttpConnection(self._loop)
        try:
            await self._loop.create_connection(
                lambda: connection,
                address,
                place.port or self._port,
                ssl=self._tls,
                server_hostname=place.host if self._tls is not None else None,
            )
        except BaseException:
            connection.close()
            raise
        return connection


def _alternating(addresses: list[str]) -> Iterator[str]:
    """Yield the same addresses, alternating between the two families."""
    first = [address for address in addresses if (":" in address) == (":" in addresses[0])]
    others = [address for address in addresses if address not in first]
    for pair in zip_longest(first, others):
        yield from filter(None, pair)


def request_opening(domain: str, path: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request without its content length.

    Args:
        domain: domain of the relay.
        path: path of the requests.
        headers: headers of the requests; names and values are not escaped.
    """
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nHost: {domain}\r\n{lines}".encode()


def _reply(answer: Answer) -> Reply:
    headers = answer.headers
    return Reply(
        answer.status,
        _retry_after(headers.get(b"retry-after")),
        _OFFER in headers.get(_OFFER_HEADER, b""),
        answer.body,
    )


def _unanswered(error: Exception) -> Unanswered:
    if isinstance(error, TimeoutError):
        return Unanswered("no answer in time", sent=True, timed_out=True)
    return Unanswered(f"no answer: {_reason(error)}", sent=True)


def _retry_after(value: bytes | None) -> float | None:
    if value is None:
        return None
    # The other form, a date, is not used between relays: it counts as an unspecified time.
    return min(float(value), MAX_RETRY_AFTER_S) if value.isdigit() else 0.0


def _reason(error: Exception) -> str:
    """Return the cause in a few words."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        # The loop's own text contains the address. Look-up errors have their own numbers, below 0.
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error) or type(error).__name__
