"""A client of operators' calls for commands that use a remote relay: streams as plain iterators."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, Final, Self

from django.core.management.base import CommandError

from peer.mux import ConnectionEndedError, StreamFailedError
from peer.rpc import RpcError, connect
from peer.rpc.site import TOKEN_VARIABLE, calls_url, read_token, trusting

_KEPT: Final = 1000


def add_options(parser: ArgumentParser) -> None:
    """Add the options that select a remote relay."""
    parser.add_argument(
        "--url", metavar="URL", help="operator site of a relay elsewhere, such as https://host:8081"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"file with the API token for --url (default: the variable {TOKEN_VARIABLE})",
    )
    parser.add_argument("--ca", metavar="FILE", help="certificates to trust for --url")


class RemoteStream:
    """The items of a streaming call, as they arrive; a context manager.

    Raises:
        CommandError: the site cannot be used, or refuses the call.
    """

    def __init__(self, options: dict[str, Any], method: str, params: dict[str, Any]) -> None:
        """Prepare the call; entering the context connects and makes it.

        Args:
            options: options of the command, with those of `add_options`.
        """
        try:
            self._url = calls_url(options["url"])
        except ValueError as error:
            raise CommandError(f"--url: {error}") from None
        try:
            self._headers = {"Authorization": f"Bearer {read_token(options['token_file'])}"}
            self._tls = trusting(options["ca"])
        except ValueError as error:
            raise CommandError(str(error)) from None
        self._call = (method, params)
        self._items: queue.Queue[Any] = queue.Queue(_KEPT)
        self._loop = asyncio.new_event_loop()
        self._following: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="calls", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop)
        while self._thread.is_alive():  # it may block on the full queue
            while not self._items.empty():
                self._items.get_nowait()
            self._thread.join(0.05)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (item := self._items.get()) is not None:
            if isinstance(item, Exception):
                raise CommandError(str(item))
            yield item

    def newest(self) -> dict[str, Any]:
        """Wait for an item, and return the newest one received so far.

        Raises:
            CommandError: the stream has ended.
        """
        items = iter(self)
        found = next(items, None)
        while found is not None and not self._items.empty():
            found = next(items, None)
        if found is None:
            raise CommandError("the operator site ended the stream")
        return found

    def _run(self) -> None:
        self._following = self._loop.create_task(self._follow())
        try:
            self._loop.run_until_complete(self._following)
        except asyncio.CancelledError:
            pass
        except (ConnectionEndedError, StreamFailedError, RpcError, OSError) as error:
            self._items.put(error)
        finally:
            self._items.put(None)
            self._loop.close()

    def _stop(self) -> None:
        if self._following is not None:
            self._following.cancel()

    async def _follow(self) -> None:
        method, params = self._call
        async with connect(self._url, tls=self._tls, headers=self._headers) as peer:
            async for item in peer.stream(method, params):
                await asyncio.to_thread(self._items.put, item)
