"""One client's connection: requests in, answers and notifications out.

Requests are answered one after another, without waiting. Notifications for a subscription that a
call creates are sent after the answer that names the subscription. The faults of the connection
(`held`, `failing`, `delay_s`) are simulated here; `dev_` methods are exempt from them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from chain.devchain import jsonrpc
from chain.devchain.bounds import (
    MAX_HELD_ANSWERS,
    MAX_SUBSCRIPTIONS,
    MAX_WAITING_BYTES,
    MAX_WAITING_MESSAGES,
)
from chain.devchain.errors import ChainFullError, JournalError
from chain.devchain.jsonrpc import BadRequestError, Request, RpcError
from chain.devchain.knobs import applies
from chain.devchain.ledger import Block
from chain.devchain.methods import dev
from chain.devchain.methods.call import Call, Site, Topic
from chain.devchain.node import Node
from chain.devchain.storage_watch import StorageWatch

log = logging.getLogger(__name__)

_INTERNAL: Final = RpcError(jsonrpc.INTERNAL_ERROR, "Internal error")


class Connection:
    """A client, from the accepted websocket on.

    Attributes:
        subscriptions: topics that it subscribed to, by subscription id.
    """

    _ids = itertools.count(1)

    def __init__(self, websocket: ServerConnection, node: Node, site: Site) -> None:
        self.subscriptions: dict[str, Topic] = {}
        self._watches: dict[str, StorageWatch] = {}
        self._websocket = websocket
        self._node = node
        self._site = site
        self._waiting: deque[str] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        # Notifications of the call in progress; None while there is no call.
        self._behind: list[str] | None = None
        # Method, and the answer with the notifications after it.
        self._held: list[tuple[str, list[str]]] = []
        # The same lists, by the subscriptions that a held answer names.
        self._unnamed: dict[str, list[str]] = {}

    async def run(self) -> None:
        """Serve the client until it disconnects."""
        self._node.listeners.add(self)
        writer = asyncio.create_task(self._write())
        try:
            async for message in self._websocket:
                self.receive(message)
        except ConnectionClosed:
            pass  # disconnected without a close handshake
        finally:
            self._node.listeners.discard(self)
            self.subscriptions.clear()
            self._watches.clear()
            self._unnamed.clear()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def receive(self, message: str | bytes) -> None:
        """Answer one message."""
        try:
            request = jsonrpc.parse(message)
        except BadRequestError as error:
            self._send([jsonrpc.error(error.request_id, error)])
            return
        self._behind = []
        known = len(self.subscriptions)
        answer = self._answer(request)
        behind, self._behind = self._behind, None
        if request.method.startswith(dev.PREFIX):
            self._send([answer])
            self._send_late(behind)
        elif applies(self._node.knobs.held, request.method):
            self._hold(request.method, [answer, *behind], list(self.subscriptions)[known:])
        else:
            self._send_late([answer, *behind])

    def release(self) -> None:
        """Send the held answers whose methods are no longer held."""
        held, self._held = self._held, []
        for method, messages in held:
            if applies(self._node.knobs.held, method):
                self._held.append((method, messages))
                continue
            self._unnamed = {
                name: each for name, each in self._unnamed.items() if each is not messages
            }
            self._send_late(messages)

    def cut(self) -> None:
        """Abort the connection without a close handshake."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._held.clear()
        self._websocket.transport.abort()

    def subscribe(self, topic: Topic, keys: Sequence[bytes] = ()) -> str:
        """See `Caller`."""
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise RpcError(
                jsonrpc.TOO_MANY_SUBSCRIPTIONS,
                "Too many subscriptions on the connection",
                f"Exceeded max limit of {MAX_SUBSCRIPTIONS}",
            )
        subscription = f"devchain{next(self._ids)}"
        self.subscriptions[subscription] = topic
        if topic is Topic.STORAGE:
            self._watches[subscription] = StorageWatch(self._node.ledger, keys)
            self._tell_values(subscription, self._node.ledger.best)
        return subscription

    def unsubscribe(self, subscription: str) -> bool:
        """See `Caller`."""
        self._watches.pop(subscription, None)
        return self.subscriptions.pop(subscription, None) is not None

    def notify(self, subscription: str, value: object) -> None:
        """See `Caller`."""
        topic = self.subscriptions.get(subscription)
        if topic is None:
            return
        message = jsonrpc.notification(topic.value, subscription, value)
        if subscription in self._unnamed:
            self._unnamed[subscription].append(message)
        elif self._behind is not None:
            self._behind.append(message)
        else:
            self._send_late([message])

    def best_head(self, block: Block) -> None:
        """See `Listener`."""
        self._tell_head(block, (Topic.BEST_HEADS, Topic.ALL_HEADS))
        for subscription in list(self._watches):
            self._tell_values(subscription, block)

    def final_head(self, block: Block) -> None:
        """See `Listener`."""
        self._tell_head(block, (Topic.FINAL_HEADS,))

    def _tell_head(self, block: Block, topics: tuple[Topic, ...]) -> None:
        header: dict[str, Any] | None = None
        for subscription, topic in self.subscriptions.items():
            if topic in topics:
                header = header or block.header.to_json()
                self.notify(subscription, header)

    def _tell_values(self, subscription: str, block: Block) -> None:
        changes = self._watches[subscription].changes(block)
        if changes is not None:
            self.notify(subscription, changes)

    def _answer(self, request: Request) -> str:
        method = self._site.find(request.method)
        try:
            if method is None:
                raise jsonrpc.method_not_found(request.method)
            if applies(self._node.knobs.failing, request.method) and not (
                request.method.startswith(dev.PREFIX)
            ):
                raise _INTERNAL
            value = method(Call(self._node, self._site, self, request.params))
            return jsonrpc.result(request.id, value)
        except RpcError as error:
            return jsonrpc.error(request.id, error)
        except ChainFullError as error:
            return jsonrpc.error(request.id, RpcError(jsonrpc.INTERNAL_ERROR, str(error)))
        except JournalError as error:
            self._site.fail(error)
            return jsonrpc.error(request.id, _INTERNAL)
        except Exception:
            # A bug in this program: the client gets an error, and the node keeps running.
            log.exception("%s failed", request.method)
            return jsonrpc.error(request.id, _INTERNAL)

    def _hold(self, method: str, messages: list[str], subscriptions: list[str]) -> None:
        self._held.append((method, messages))
        self._unnamed.update(dict.fromkeys(subscriptions, messages))
        if len(self._held) > MAX_HELD_ANSWERS:
            log.warning("more than %d answers held: connection cut", MAX_HELD_ANSWERS)
            self.cut()

    def _send_late(self, messages: list[str]) -> None:
        delay_s = self._node.knobs.delay_s
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._send, messages)
        else:
            self._send(messages)

    def _send(self, messages: list[str]) -> None:
        self._waiting.extend(messages)
        self._waiting_bytes += sum(map(len, messages))
        if len(self._waiting) > MAX_WAITING_MESSAGES or self._waiting_bytes > MAX_WAITING_BYTES:
            log.warning("a client does not read: connection cut")
            self.cut()
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                message = self._waiting.popleft()
                self._waiting_bytes -= len(message)
                try:
                    await self._websocket.send(message)
                except ConnectionClosed:
                    return
