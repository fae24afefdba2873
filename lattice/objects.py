"""Large payloads in the object store of JetStream.

The bucket is named after the lattice's id. An object consists of chunks on one subject and a
description on another, which is written last. A payload is read once: its reader deletes it,
including the description. Payloads that are never read are deleted by `janitor`. Chunks are fetched
one by one from the stream, without a consumer: a missing chunk is noticed at once, and surplus ones
are never fetched.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import nats.errors
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from lattice.connection import LatticeConnection
from lattice.errors import (
    NotConnectedError,
    ObjectLostError,
    ObjectStoreAwayError,
    ObjectStoreError,
    QuotaExceededError,
    TooLargeError,
)
from proto.lattice.subjects import check_lattice_id

CHUNK_BYTES: Final = 128 * 1024
MAX_DESCRIPTION_BYTES: Final = 64 * 1024
API_TIMEOUT_S: Final = 5.0

_DIGEST: Final = "SHA-256="
_NUID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ROLLUP: Final = {"Nats-Rollup": "sub"}
_FULL: Final = frozenset({10047, 10052, 10077, 10122})
"""JetStream error codes for exceeded limits of storage, account, stream and bucket."""
_SILENT: Final = (
    nats.errors.NoRespondersError,
    js_errors.NoStreamResponseError,
    js_errors.ServiceUnavailableError,
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Description:
    """The store's description of an object.

    Attributes:
        nuid: last part of the subject of its chunks.
        size: size of the object, in bytes.
        digest: SHA-256 digest of the object.
    """

    nuid: str
    size: int
    digest: bytes

    @classmethod
    def read(cls, data: bytes) -> Description:
        """Read a description.

        Raises:
            ObjectLostError: the description is malformed, or that of a deleted object.
        """
        try:
            if len(data) > MAX_DESCRIPTION_BYTES:
                raise ValueError("too long")
            found = json.loads(data)
            nuid, size, digest = found["nuid"], found["size"], found["digest"]
            if found.get("deleted"):
                raise ObjectLostError("the object was deleted")
            if not (type(size) is int and size >= 0 and _NUID.fullmatch(nuid)):
                raise ValueError("size or nuid")
            if not digest.upper().startswith(_DIGEST):
                raise ValueError("digest")
            return cls(nuid, size, urlsafe_b64decode(digest[len(_DIGEST) :]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ObjectLostError(f"the object's description is malformed: {error}") from None


class Objects:
    """The payloads of a lattice.

    Attributes:
        bucket: name of the bucket that holds them.
        stream: name of the bucket's stream.
        chunks: prefix of the subjects of chunks.
        descriptions: prefix of the subjects of descriptions.
    """

    def __init__(self, connection: LatticeConnection) -> None:
        self._connection = connection
        self._options = connection.options
        bucket = check_lattice_id(self._options.lattice)
        self.bucket = bucket
        self.stream = f"OBJ_{bucket}"
        self.chunks = f"$O.{bucket}.C."
        self.descriptions = f"$O.{bucket}.M."
        self._background: set[asyncio.Task[None]] = set()

    async def put(self, name: str, data: bytes) -> None:
        """Store a payload, and return once it can be read.

        Raises:
            TooLargeError: the payload is larger than the options allow.
            QuotaExceededError: the bucket is full.
            ObjectStoreAwayError: JetStream is not available.
        """
        if len(data) > self._options.max_payload_bytes:
            raise TooLargeError("payload", len(data), self._options.max_payload_bytes)
        js = await self.jetstream()
        nuid = secrets.token_hex(11)
        subject = self.chunks + nuid
        try:
            await self._make_room(js, len(data))
            count = 0
            for start in range(0, len(data), CHUNK_BYTES):
                await js.publish(subject, data[start : start + CHUNK_BYTES])
                count += 1
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
            info = api.ObjectInfo(
                name=name,
                bucket=self.bucket,
                nuid=nuid,
                size=len(data),
                chunks=count,
                digest=_DIGEST + digest,
                options=api.ObjectMetaOptions(max_chunk_size=CHUNK_BYTES),
            )
            text = json.dumps(info.as_dict()).encode()
            await js.publish(self._description_of(name), text, headers=_ROLLUP)
        except BaseException as error:
            self._later(self.purge(subject))
            self._raise_ours(error)
            raise

    async def take(self, name: str, size: int) -> bytes:
        """Fetch a payload, check it, and delete it.

        Args:
            name: name of the object.
            size: size that it must have, in bytes.

        Raises:
            TooLargeError: the payload is larger than the options allow.
            ObjectLostError: the object is missing, short, changed or of another size.
            ObjectStoreAwayError: JetStream is not available.
        """
        if size > self._options.max_payload_bytes:
            raise TooLargeError("payload", size, self._options.max_payload_bytes)
        js = await self.jetstream()
        try:
            about = Description.read(await self._description(js, name))
            if about.size != size:
                raise ObjectLostError(f"object {name} has {about.size} bytes instead of {size}")
            data = await self._read(js, name, about)
        except (nats.errors.Error, ValueError, KeyError, TypeError) as error:
            self._raise_ours(error)
            raise
        self._later(self.forget(name, about.nuid))
        return data

    async def close(self) -> None:
        """Wait for deletions under way."""
        if self._background:
            await asyncio.wait(self._background, timeout=API_TIMEOUT_S)

    async def _read(self, js: JetStreamContext, name: str, about: Description) -> bytes:
        chunks: list[bytes] = []
        missing, sequence = about.size, 1
        while missing > 0:
            chunk = await self.message(js, self.chunks + about.nuid, sequence)
            if chunk is None or not chunk.data or chunk.seq is None:
                raise ObjectLostError(f"object {name} lacks {missing} of its {about.size} bytes")
            chunks.append(chunk.data)
            missing -= len(chunk.data)
            sequence = chunk.seq + 1
        data = b"".join(chunks)
        if missing or hashlib.sha256(data).digest() != about.digest:
            raise ObjectLostError(f"object {name} was changed: its digest differs")
        return data

    async def _description(self, js: JetStreamContext, name: str) -> bytes:
        found = await self.message(js, self._description_of(name))
        if found is None or not found.data:
            raise ObjectLostError(f"object {name} is missing")
        return found.data

    async def message(
        self, js: JetStreamContext, subject: str, sequence: int | None = None
    ) -> api.RawStreamMsg | None:
        """Return a subject's first message from `sequence` on (None: its last), or None."""
        arguments = {"seq": sequence, "subject": subject, "next": sequence is not None}
        try:
            return await js.get_msg(self.stream, direct=True, **arguments)  # type: ignore[arg-type]
        except (js_errors.NotFoundError, nats.errors.NoRespondersError):
            pass  # a replica that lags behind, or a bucket without direct access: ask the leader
        try:
            return await js.get_msg(self.stream, **arguments)  # type: ignore[arg-type]
        except js_errors.NotFoundError:
            return None

    async def _make_room(self, js: JetStreamContext, size: int) -> None:
        """Create the bucket if it is missing, and check the quota."""
        options = self._options
        try:
            used = (await js.stream_info(self.stream)).state.bytes
        except js_errors.NotFoundError:
            config = api.ObjectStoreConfig(
                ttl=options.object_ttl_s or None, max_bytes=options.quota_bytes or None
            )
            with contextlib.suppress(js_errors.BadRequestError):  # created by another just now
                await js.create_object_store(self.bucket, config)
            used = 0
        if options.quota_bytes and used + size > options.quota_bytes:
            raise QuotaExceededError(
                f"bucket {self.bucket} has {used} bytes: {size} more exceed the quota of"
                f" {options.quota_bytes}"
            )

    async def forget(self, name: str, nuid: str) -> None:
        """Delete an object, including its description."""
        await self.purge(self._description_of(name))
        if nuid:
            await self.purge(self.chunks + nuid)

    async def purge(self, subject: str) -> None:
        """Delete all messages of a subject, and log a failure."""
        try:
            await (await self.jetstream()).purge_stream(self.stream, subject=subject)
        except (nats.errors.Error, ObjectStoreError) as error:
            _log.warning("lattice: cannot delete %s of bucket %s: %s", subject, self.bucket, error)

    def _description_of(self, name: str) -> str:
        return self.descriptions + urlsafe_b64encode(name.encode()).decode()

    async def jetstream(self) -> JetStreamContext:
        """Return a JetStream context.

        Raises:
            ObjectStoreAwayError: the connection is down.
        """
        try:
            return await self._connection.jetstream(API_TIMEOUT_S)
        except NotConnectedError as error:
            raise ObjectStoreAwayError(f"the object store is not available: {error}") from None

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _raise_ours(self, error: BaseException) -> None:
        """Raise this package's counterpart of an error of nats-py; ignore other errors."""
        if isinstance(error, js_errors.APIError) and error.err_code in _FULL:
            text = f"the object store is full: {error.description}"
            raise QuotaExceededError(text) from error
        if isinstance(error, nats.errors.Error):
            text = f"the object store is not available: {_said(error, self._connection.denied)}"
            raise ObjectStoreAwayError(text) from error
        if isinstance(error, (ValueError, KeyError, TypeError)):  # an answer of an unknown form
            raise ObjectLostError(f"JetStream's answer cannot be used: {error}") from error


def _said(error: Exception, denied: str) -> str:
    if isinstance(error, _SILENT):
        return "JetStream does not answer; enable it on the NATS server"
    if isinstance(error, nats.errors.TimeoutError):
        return f"no answer within {API_TIMEOUT_S:g} s" + (denied and f" ({denied})")
    return str(error).removeprefix("nats: ")
