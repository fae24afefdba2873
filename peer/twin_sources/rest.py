"""Source of twins in the registry of a relay, over its HTTP interface.

    GET <base>/api/v1/twins/7
    GET <base>/api/v1/twins?account=0x...

Both answer with `{"id", "account", "pk", "relays"}`, or 404. One thread with one persistent
connection is enough: look-ups are few, as the cache in front merges and stores them.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from chain.urls import host_and_port, shown
from peer.errors import TwinsAwayError
from peer.twin_sources.fields import parse_twin
from peer.twins import Twin

PATH: Final = "/api/v1/twins"

TIMEOUT_S: Final = 10.0
"""Time-out for each network operation of a request, in seconds."""

MAX_ANSWER_BYTES: Final = 64 * 1024
"""Maximum size of an answer, in bytes; a twin takes a few hundred."""


PROBLEM: Final = "application/problem+json"
"""Content type of a registry's error answers."""


class _Answer(NamedTuple):
    status: int
    kind: str  # content type
    body: bytes


class RestTwins:
    """A `TwinSource` that queries one relay's registry.

    Args:
        url: http:// or https:// URL of the relay's site or of its twins.

    Raises:
        ValueError: a URL is invalid.
    """

    def __init__(self, url: str) -> None:
        where = shown(url)
        try:
            self._host, self._port = host_and_port(url)
        except ValueError as error:
            raise ValueError(f"twins: {where}: {error}") from None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not self._host or parts.query:
            raise ValueError(f"twins: {where} is not an http:// or https:// URL without a query")
        self._secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/").removesuffix(PATH) + PATH
        self._thread = ThreadPoolExecutor(1, "rest-twins")
        self._connection: http.client.HTTPConnection | None = None

    async def by_id(self, twin_id: int) -> Twin | None:
        """Return the twin with an id, None if it does not exist."""
        twin = await self._ask(f"{self._path}/{twin_id}")
        return self._the_one(twin, twin is None or twin.id == twin_id)

    async def by_account(self, account: bytes) -> Twin | None:
        """Return the twin of an account, None if the account has none."""
        twin = await self._ask(f"{self._path}?account=0x{account.hex()}")
        return self._the_one(twin, twin is None or twin.account == account)

    async def aclose(self) -> None:
        """Close the connection and end the thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    async def _ask(self, path: str) -> Twin | None:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._get, path)

    def _the_one(self, twin: Twin | None, asked_for: bool) -> Twin | None:
        if not asked_for:
            raise TwinsAwayError(f"twins of {self._host}: answers with another twin")
        return twin

    # In the thread.

    def _get(self, path: str) -> Twin | None:
        kept = self._connection is not None
        try:
            try:
                answer = self._exchange(path)
            except (http.client.HTTPException, OSError):
                # The server may just have closed a connection that was kept.
                self._drop()
                if not kept:
                    raise
                answer = self._exchange(path)
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            raise TwinsAwayError(
                f"twins of {self._host}: {error or type(error).__name__}"
            ) from None
        if answer.status == http.HTTPStatus.NOT_FOUND and answer.kind == PROBLEM:
            return None
        if answer.status != http.HTTPStatus.OK:
            # A 404 of any other type means that the registry is missing, not the twin.
            raise TwinsAwayError(
                f"twins of {self._host}: {self._path} answers with status {answer.status}"
            )
        try:
            found = json.loads(answer.body)
            return parse_twin(*(found[field] for field in ("id", "account", "pk", "relays")))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise TwinsAwayError(f"twins of {self._host}: not a twin: {error}") from None

    def _exchange(self, path: str) -> _Answer:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=TIMEOUT_S)
        self._connection.request("GET", path, headers={"Accept": "application/json"})
        with self._connection.getresponse() as answer:
            body = answer.read(MAX_ANSWER_BYTES + 1)
            if len(body) > MAX_ANSWER_BYTES:
                raise http.client.HTTPException(f"answer of more than {MAX_ANSWER_BYTES} bytes")
            return _Answer(answer.status, answer.headers.get_content_type(), body)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
