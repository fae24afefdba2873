"""Bearer tokens of SBD, which decide whether a client may connect at all (sheet section 6).

`PUT /authenticate` issues a token: without a hook server to every client, otherwise to those for
whom the hook server answers with a token of its own. Tokens are stored in Redis, so that every
worker knows them. A token that is not used for `sbd.idle_ms` expires; uses are its issue, opening a
connection with it, and keeping such a connection open.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from proto.sbd.bounds import NONCE_BYTES
from redispipe.errors import LinkLost
from relay.sbd.hook import HookClient
from relay.sbd.options import AuthReason

PATH: Final = "/authenticate"
MAX_BODY_BYTES: Final = 1024
MAX_TOKEN_CHARS: Final = 1024
HOOK_S: Final = 10.0
"""Seconds to wait for the whole answer of a hook server."""
MAX_HOOK_BYTES: Final = 16 * 1024
MAX_HOOKS: Final = 32
"""Maximum number of concurrent requests to the hook server at a worker; further ones are answered
503."""
BEARER: Final = b"Bearer "
JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"
UNAUTHORIZED: Final = "Unauthorized"

Ask = Callable[..., Any]
"""Function that sends a command to Redis and awaits its reply."""


class Answer(NamedTuple):
    """An HTTP answer.

    Attributes:
        reason: reason to count; None: not counted, as when a token was issued.
    """

    status: int
    content_type: bytes
    body: bytes
    reason: AuthReason | None = None


class HookError(Exception):
    """The hook server gave no token.

    Attributes:
        answer: answer for the client.
    """

    def __init__(self, status: int, text: str, reason: AuthReason) -> None:
        super().__init__(text)
        self.answer = Answer(status, TEXT, text.encode(), reason)


class Tokens:
    """The tokens that the workers of one Redis have issued."""

    def __init__(self, ask: Ask, hook_url: str, idle_ms: int) -> None:
        """Create the tokens of a worker.

        Args:
            hook_url: URL of the hook server; empty: every client gets a token.
            idle_ms: milliseconds after which an unused token expires.
        """
        self._ask = ask
        self._hook = HookClient(hook_url, MAX_HOOKS) if hook_url else None
        self._idle_ms = idle_ms
        self._hooks = asyncio.Semaphore(MAX_HOOKS)
        self.counts: Counter[AuthReason] = Counter()

    async def authenticate(self, body: bytes) -> Answer:
        """Return the answer to a request for a token."""
        answer = await self._authenticate(body)
        if answer.reason is not None:
            self.counts[answer.reason] += 1
        return answer

    async def _authenticate(self, body: bytes) -> Answer:
        if len(body) > MAX_BODY_BYTES:
            text = f"body of {len(body)} bytes is too large, limit: {MAX_BODY_BYTES}"
            return Answer(413, TEXT, text.encode(), AuthReason.TOO_LARGE)
        try:
            token = self._made() if self._hook is None else await self._from_hook(self._hook, body)
            await self._ask("SET", _name(token), "", "PX", self._idle_ms)
        except HookError as error:
            return error.answer
        except LinkLost:
            return Answer(503, TEXT, b"Redis does not answer", AuthReason.REDIS_AWAY)
        return Answer(200, JSON, json.dumps({"authToken": token}).encode())

    async def admit(self, header: bytes | None) -> Answer | str | None:
        """Check the Authorization header of a handshake.

        Returns:
            The token, None if none is needed, or the answer that refuses.
        """
        refusal = Answer(401, TEXT, UNAUTHORIZED.encode(), AuthReason.BAD_TOKEN)
        if header is None or not header.isascii():
            if self._hook is None:
                return None
            self.counts[AuthReason.NO_TOKEN] += 1
            return refusal._replace(reason=AuthReason.NO_TOKEN)
        token = header
        while token.startswith(BEARER):  # as in the reference, a repeated prefix is stripped too
            token = token[len(BEARER) :]
        if token == header or not token or token.startswith(b" "):
            self.counts[AuthReason.BAD_TOKEN] += 1
            return refusal
        try:
            known = await self._ask("PEXPIRE", _name(token.decode()), self._idle_ms)
        except LinkLost:
            self.counts[AuthReason.REDIS_AWAY] += 1
            return Answer(503, TEXT, b"Redis does not answer", AuthReason.REDIS_AWAY)
        if known == 1:
            return token.decode()
        self.counts[AuthReason.BAD_TOKEN] += 1
        return refusal

    async def keep(self, tokens: Iterable[str]) -> None:
        """Extend the life of tokens; to be called every third of `sbd.idle_ms` for those in use."""
        for token in set(tokens):
            await self._ask("SET", _name(token), "", "PX", self._idle_ms)

    def close(self) -> None:
        """Cancel requests to the hook server."""
        if self._hook is not None:
            self._hook.close()

    def _made(self) -> str:
        return secrets.token_urlsafe(NONCE_BYTES)

    async def _from_hook(self, hook: HookClient, body: bytes) -> str:
        if self._hooks.locked():
            raise HookError(503, "too many requests to the hook server", AuthReason.HOOK_FAILED)
        async with self._hooks:
            try:
                status, reply = await hook.put(body, HOOK_S, MAX_HOOK_BYTES + 1)
            except (OSError, http.client.HTTPException, TimeoutError) as error:
                text = f"the hook server did not answer: {error or type(error).__name__}"
                raise HookError(502, text, AuthReason.HOOK_FAILED) from error
        if status == 401:
            raise HookError(401, UNAUTHORIZED, AuthReason.REFUSED)
        if not 200 <= status < 300:
            text = f"the hook server answered {status}"
            raise HookError(502, text, AuthReason.HOOK_FAILED)
        return _token_of(reply)


def _token_of(reply: bytes) -> str:
    if len(reply) > MAX_HOOK_BYTES:
        text = f"the answer of the hook server is above {MAX_HOOK_BYTES} bytes"
        raise HookError(502, text, AuthReason.HOOK_FAILED)
    try:
        text = reply.decode()
    except UnicodeDecodeError as error:
        text = f"the answer of the hook server is not UTF-8: {error.reason}"
        raise HookError(502, text, AuthReason.HOOK_FAILED) from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    token = found.get("authToken") if isinstance(found, dict) else None
    if not isinstance(token, str) or not token.isascii() or not 0 < len(token) <= MAX_TOKEN_CHARS:
        text = f"the hook server's authToken is not text of 1 to {MAX_TOKEN_CHARS} characters"
        raise HookError(500, text, AuthReason.HOOK_FAILED)
    return token


def _name(token: str) -> str:
    return f"sbd:token:{token}"
