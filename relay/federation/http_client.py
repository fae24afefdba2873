"""Requests to other relays: kept connections, no redirects, bounded answers, TLS verified.

One client per process holds the connections to all relays. It takes no cookies, no proxies and no
compression; of an answer it reads the status, two headers and as much of the body as was asked for.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

import aiohttp

from proto.federation.batch import OFFER, OFFER_HEADER
from proto.federation.domains import DomainError, parse
from relay.federation.resolver import PublicResolver

KEEP_ALIVE_S: Final = 4.0
"""An unused connection is closed before the usual servers do (5 s and more), as a request that
meets their closing has to be repeated."""
MAX_CONNECTIONS: Final = 1024
"""To all relays together."""
MAX_IGNORED_BYTES: Final = 16 << 10
"""Of a body nobody needs that are read to keep the connection; a longer one ends it."""
IGNORED_BODY_S: Final = 0.25
"""How long they are waited for."""
MAX_HEADER_BYTES: Final = 8 << 10
MAX_RETRY_AFTER_S: Final = 3600.0
PLAIN_BODY_BYTES: Final = 1 << 20
"""The library wants larger ones as a file, which it writes piece by piece."""
MAX_REASON_CHARS: Final = 120


class Reply(NamedTuple):
    """An answer.

    Attributes:
        status: of HTTP.
        retry_after_s: how long the relay wants to be left alone; None where it does not say.
        offers_batch: it takes the batch form.
        body: up to as many bytes as were asked for and one more.
    """

    status: int
    retry_after_s: float | None
    offers_batch: bool
    body: bytes


class Unanswered(Exception):
    """There was no answer.

    Attributes:
        sent: the request may have arrived.
        timed_out: it was waited for in vain.
    """

    def __init__(self, text: str, *, sent: bool, timed_out: bool = False) -> None:
        super().__init__(text[:MAX_REASON_CHARS])
        self.sent = sent
        self.timed_out = timed_out


class HttpClient:
    """Posts to relays by their domain."""

    def __init__(
        self,
        resolver: PublicResolver,
        *,
        scheme: str,
        connect_timeout_s: float,
        ca_file: str = "",
        limit_per_host: int = 32,
    ) -> None:
        """
        Args:
            resolver: decides which addresses may be connected to.
            scheme: `https` or `http`.
            connect_timeout_s: time the connection to one address may take.
            ca_file: certificates to trust instead of the system's.
            limit_per_host: connections to one relay.
        """
        self._resolver = resolver
        self._scheme = scheme
        self._connect_timeout_s = connect_timeout_s
        context = ssl.create_default_context(cafile=ca_file or None) if scheme == "https" else True
        connector = aiohttp.TCPConnector(
            resolver=resolver,
            use_dns_cache=False,
            ssl=context,
            limit=MAX_CONNECTIONS,
            limit_per_host=limit_per_host,
            keepalive_timeout=KEEP_ALIVE_S,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    async def post(
        self,
        domain: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        answer_bytes: int = 0,
    ) -> Reply:
        """Sends one request.

        Args:
            domain: of the relay.
            path: of the request.
            headers: of the request.
            body: of the request.
            timeout_s: for everything.
            answer_bytes: expected of the body of the answer.

        Raises:
            Unanswered: there was no answer, or it made no sense.
        """
        try:
            place = parse(domain)
            self._resolver.check_literal(place.host)
        except (DomainError, OSError) as error:
            raise Unanswered(str(error), sent=False) from error
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._connect_timeout_s)
        try:
            async with self._session.post(
                f"{self._scheme}://{domain}{path}",
                data=body if len(body) <= PLAIN_BODY_BYTES else io.BytesIO(body),
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                content = await _content(response, answer_bytes)
                return Reply(
                    response.status,
                    _retry_after(response.headers.get("Retry-After")),
                    OFFER in response.headers.get(OFFER_HEADER, ""),
                    content,
                )
        except aiohttp.ConnectionTimeoutError as error:
            raise Unanswered("no connection in time", sent=False, timed_out=True) from error
        except TimeoutError as error:
            raise Unanswered("no answer in time", sent=True, timed_out=True) from error
        except aiohttp.ClientConnectorError as error:
            raise Unanswered(f"no connection: {_reason(error)}", sent=False) from error
        except aiohttp.InvalidURL as error:
            raise Unanswered("not a domain", sent=False) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unanswered(f"no answer: {_reason(error)}", sent=True) from error

    async def close(self) -> None:
        """Closes all connections."""
        await self._session.close()
        await self._resolver.close()


async def _content(response: aiohttp.ClientResponse, wanted: int) -> bytes:
    """The body, or a little more than was wanted of it, so that too long a one is noticed."""
    if wanted:
        return await _start(response, wanted)
    # Nobody needs it: it is read so that the connection can be used again, if that is soon done.
    if not response.content.is_eof():
        try:
            async with asyncio.timeout(IGNORED_BODY_S):
                await _start(response, MAX_IGNORED_BYTES)
        except (TimeoutError, aiohttp.ClientError):
            response.close()
    return b""


async def _start(response: aiohttp.ClientResponse, limit: int) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while size_bytes <= limit:
        part = await response.content.read(limit + 1 - size_bytes)
        if not part:
            break
        parts.append(part)
        size_bytes += len(part)
    else:
        response.close()
    return b"".join(parts)


def _retry_after(value: str | None) -> float | None:
    if value is None:
        return None
    return min(float(value), MAX_RETRY_AFTER_S) if value.isascii() and value.isdigit() else 0.0


def _reason(error: BaseException) -> str:
    """The cause in a few words: the library's own texts name hosts and objects."""
    while isinstance(error, aiohttp.ClientConnectorError) and error.os_error is not error:
        error = error.os_error
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror
    return str(error) or type(error).__name__
