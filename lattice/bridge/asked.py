"""Requests of operators to a bridge, which arrive through Redis: link changes, and single calls."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from typing import Any, Final

import msgpack
from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.bridge.refusals import FailedError
from lattice.bridge.to_lattice import find_target
from lattice.caller import LatticeCaller
from lattice.connection import LatticeConnection
from lattice.control import ControlClient
from lattice.directory import Directory
from lattice.errors import LatticeError
from lattice.process import goes_on
from lattice.provider import LatticeProvider
from proto.lattice import state
from proto.lattice.errors import FormatError, KeyFormatError
from proto.lattice.messages import LinkDefinition
from proto.lattice.nkeys import KeyKind, decode_public
from proto.lattice.state import Answer, Request, Verb

WAIT_S: Final = 1.0
RETRY_S: Final = 1.0
ANSWER_S: Final = 5.0
MAX_RUNNING: Final = 32

logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """A request cannot be carried out; the text is for the operator."""


class Asked:
    """Carries out requests of operators from Redis, at most `MAX_RUNNING` at once."""

    def __init__(
        self,
        redis: Redis,
        connection: LatticeConnection,
        caller: LatticeCaller,
        provider: LatticeProvider,
        directory: Directory,
    ) -> None:
        self._redis = redis
        self._caller = caller
        self._provider = provider
        self._directory = directory
        self._control = ControlClient(connection, ANSWER_S)
        self._room = asyncio.Semaphore(MAX_RUNNING)
        self._running: set[asyncio.Task[None]] = set()

    async def keep(self) -> None:
        """Carry out requests until cancelled."""
        try:
            while goes_on():
                await self._room.acquire()
                data: Any = None
                try:
                    found: Any = await self._redis.blpop([state.REQUESTS], WAIT_S)
                    data = found and found[1]
                except RedisError as error:
                    logger.warning("requests of operators cannot be read: %s", error)
                    await asyncio.sleep(RETRY_S)
                finally:
                    if not data:
                        self._room.release()
                if data:
                    task = asyncio.create_task(self._answer(data))
                    self._running.add(task)
                    task.add_done_callback(self._done)
        finally:
            for task in self._running:
                task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.release()

    async def _answer(self, data: bytes) -> None:
        try:
            request = state.decode(Request, data)
        except FormatError as error:
            logger.warning("a request of an operator is malformed: %s", error)
            return
        left_s = request.deadline - time.time()
        if left_s <= 0:
            return
        try:
            async with asyncio.timeout(left_s):
                answer = Answer(result=await self._do(request))
        except TimeoutError:
            answer = Answer(error="no answer of the lattice in time; it may have been carried out")
        except (RefusedError, FailedError, LatticeError) as error:
            answer = Answer(error=str(error))
        except (KeyError, TypeError, ValueError) as error:
            answer = Answer(error=f"malformed request: {error}")
        key = state.answer_key(request.id)
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.rpush(key, state.encode(answer))
                pipe.expire(key, state.ANSWER_TTL_S)
                await pipe.execute()
        except RedisError as error:
            logger.warning("cannot answer an operator: %s", error)

    async def _do(self, request: Request) -> dict[str, Any]:
        given = request.arguments
        match request.verb:
            case Verb.PUT_LINK:
                _check(given["actor_id"], KeyKind.ACTOR)
                _check(given["provider_id"], KeyKind.PROVIDER)
                await self._control.put_link(LinkDefinition(**given))
                return {}
            case Verb.DEL_LINK:
                _check(given["actor_id"], KeyKind.ACTOR)
                await self._control.delete_link(**given)
                return {}
            case Verb.CALL:
                return await self._call(**given)
        raise RefusedError(f"unknown verb {request.verb!r}")

    async def _call(
        self, target: str, operation: str, data: str, link_name: str, timeout_ms: int
    ) -> dict[str, Any]:
        between = f"{link_name}." if link_name else ""
        found = find_target(f"lattice.{target}.{between}{operation}", self)
        payload = msgpack.packb(json.loads(data)) if data else b""
        origin = self._provider if found.entity.is_actor else self._caller
        began_s = time.perf_counter()
        result = await origin.call(found.entity, found.operation, payload, timeout_ms / 1000)
        took_ms = round((time.perf_counter() - began_s) * 1000, 3)
        return {"result": _shown(result), "took_ms": took_ms}

    def actor_of(self, alias: str) -> str | None:
        """Return the actor with an alias, as `lattice.bridge.to_lattice.Directory` defines."""
        return self._directory.actor_of(alias)

    def contract_of(self, provider: str, link_name: str) -> str | None:
        """Return the contract of a link, as `lattice.bridge.to_lattice.Directory` defines."""
        actor = self._caller.origin.public_key
        return self._directory.contract_of(provider, link_name, actor)


def _check(key: str, kind: KeyKind) -> None:
    try:
        decode_public(key, kind)
    except KeyFormatError as error:
        raise RefusedError(str(error)) from None


def _shown(result: bytes) -> str:
    if not result:
        return ""
    try:
        return json.dumps(msgpack.unpackb(result, strict_map_key=False), ensure_ascii=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException):
        return base64.b64encode(result).decode()
