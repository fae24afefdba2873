"""Receivers of alarms for tests: a webhook server and a mail server, each in its own thread.

Both record what they receive and answer as a test specifies; they listen on a free loopback port.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Coroutine, Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, TypeVar

from tests.support.partner import Behaviour, Delivery, Partner, answer
from tests.support.redis_servers import free_port
from tests.support.stream_server import StreamServer

WAIT_S = 60.0

Result = TypeVar("Result")


class LoopThread:
    """An event loop in a thread, for servers of tests that block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


class Hook:
    """A webhook server; `behave` may be called at any time."""

    def __init__(self, loop: LoopThread, tls: ssl.SSLContext | None = None) -> None:
        self._loop = loop
        self._tls = tls
        self._server = Partner(free_port(), answer(200), tls=tls)

    @property
    def url(self) -> str:
        host = "localhost" if self._tls else "127.0.0.1"
        return f"{'https' if self._tls else 'http'}://{host}:{self._server.port}/hook?from=relay"

    @property
    def requests(self) -> list[Delivery]:
        """All requests received, accepted or not."""
        return list(self._server.deliveries)

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Bodies of these requests."""
        return [json.loads(each.body) for each in self.requests]

    def behave(self, behaviour: Behaviour) -> None:
        self._server.behave = behaviour

    def start(self) -> Hook:
        self._loop.run(self._server.start())
        return self

    def stop(self) -> None:
        """Stop listening; `start` listens again on the same port."""
        self._loop.run(self._server.stop())


@contextlib.contextmanager
def hook(tls: ssl.SSLContext | None = None) -> Iterator[Hook]:
    """Run a webhook server during the block."""
    loop = LoopThread()
    server = Hook(loop, tls).start()
    try:
        yield server
    finally:
        server.stop()
        loop.stop()


class MailServer:
    """Server that implements as much SMTP as clients need.

    Attributes:
        refuse: answer to the command MAIL, such as `451 later`; empty: e-mails are accepted.
        user, password: required credentials; empty: none are required.
        messages: accepted e-mails.
        secured: whether a client has used STARTTLS.
    """

    def __init__(self, loop: LoopThread, tls: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        self.refuse = ""
        self.user = self.password = ""
        self.messages: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.secured = False
        self._tls = tls
        self._loop = loop
        self._server = StreamServer(self._serve)

    async def start(self) -> None:
        await self._server.start(port=self.port)

    async def stop(self) -> None:
        await self._server.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        went = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)
        with contextlib.suppress(*went):
            await self._talk(reader, writer)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())

        say("220 test")
        secured = signed_in = False
        while line := (await reader.readline()).decode().strip():
            verb = line.upper().split(" ")[0]
            if verb == "EHLO":
                say("250-test")
                if self._tls and not secured:
                    say("250-STARTTLS")
                say("250 AUTH PLAIN")
            elif verb == "STARTTLS":
                say("220 go on")
                await writer.drain()
                assert self._tls is not None
                await writer.start_tls(self._tls)
                secured = self.secured = True
            elif verb == "AUTH":
                signed_in = self._knows(line.split(" ")[-1])
                say("235 welcome" if signed_in else "535 no")
            elif verb == "MAIL" and ((self.user and not signed_in) or self.refuse):
                say(self.refuse or "530 sign in")
            elif verb == "RCPT":
                self.recipients.append(line.partition(":")[2].strip("<> "))
                say("250 ok")
            elif verb == "DATA":
                say("354 go on")
                content = (await reader.readuntil(b"\r\n.\r\n"))[:-5]
                message = message_from_bytes(content, policy=policy.default)
                assert isinstance(message, EmailMessage)
                self.messages.append(message)
                say("250 taken")
            elif verb == "QUIT":
                say("221 bye")
                return
            else:
                say("250 ok")

    def _knows(self, offered: str) -> bool:
        _, user, password = base64.b64decode(offered).decode().split("\0")
        return (user, password) == (self.user, self.password)


@contextlib.contextmanager
def mail_server(tls: ssl.SSLContext | None = None) -> Iterator[MailServer]:
    """Run a mail server during the block."""
    loop = LoopThread()
    server = MailServer(loop, tls)
    loop.run(server.start())
    try:
        yield server
    finally:
        loop.run(server.stop())
        loop.stop()
