"""The registry of claims: without an entry in it, hosts refuse a program's calls to actors."""

from __future__ import annotations

import contextlib
import logging
from typing import Final

import nats.errors
from nats.js import api
from nats.js import errors as js_errors
from nats.js.kv import KeyValue

from lattice.connection import LatticeConnection
from lattice.errors import LatticeError, NotConnectedError, RegistryError
from proto.lattice.bounds import MAX_ITEMS
from proto.lattice.errors import FormatError
from proto.lattice.registry import (
    CLAIMS_PREFIX,
    ActorClaims,
    ProviderClaims,
    bucket_name,
    claims_key,
    decode_claims,
)

API_TIMEOUT_S: Final = 5.0
_log = logging.getLogger(__name__)


class Registry:
    """Reads and writes claims; entries of the registry are not signed."""

    def __init__(self, connection: LatticeConnection) -> None:
        self._connection = connection
        self._bucket = bucket_name(connection.options.lattice)

    async def put(self, claims: ActorClaims | ProviderClaims) -> None:
        """Write an entry.

        Raises:
            RegistryError: JetStream is not available, or refuses the entry.
        """
        try:
            await (await self._open()).put(claims_key(claims.subject), claims.encode())
        except nats.errors.Error as error:
            raise self._failed("write", error) from error

    async def register(self, claims: ActorClaims | ProviderClaims) -> None:
        """Write the entry of a program that starts; log a failure, since it is not fatal."""
        try:
            await self.put(claims)
        except LatticeError as error:
            _log.warning("lattice: actors on hosts will refuse our calls: %s", error)

    async def get(self, public_key: str) -> ActorClaims | ProviderClaims | None:
        """Return the entry of an actor or a provider, or None.

        Raises:
            RegistryError: JetStream is not available.
            FormatError: the entry is malformed, or of another key.
        """
        key = claims_key(public_key)
        try:
            entry = await (await self._open()).get(key)
        except js_errors.NotFoundError:
            return None
        except nats.errors.Error as error:
            raise self._failed("read", error) from error
        return decode_claims(key, entry.value or b"")

    async def claims(self) -> list[ActorClaims | ProviderClaims]:
        """Return all well-formed entries, at most `MAX_ITEMS`; malformed ones are skipped.

        Raises:
            RegistryError: JetStream is not available, or there is no registry.
        """
        found: list[ActorClaims | ProviderClaims] = []
        try:
            js = await self._connection.jetstream(API_TIMEOUT_S)
            bucket = await js.key_value(self._bucket)
            watcher = await bucket.watchall(ignore_deletes=True)
            try:
                async for entry in watcher:
                    if entry is None or len(found) >= MAX_ITEMS:
                        break
                    if entry.key.startswith(CLAIMS_PREFIX):
                        with contextlib.suppress(FormatError):
                            found.append(decode_claims(entry.key, entry.value or b""))
            finally:
                await watcher.stop()  # type: ignore[no-untyped-call]
        except NotConnectedError as error:
            raise RegistryError(f"the registry is not available: {error}") from None
        except nats.errors.Error as error:
            raise self._failed("read", error) from error
        return found

    async def delete(self, public_key: str) -> None:
        """Delete an entry.

        Raises:
            RegistryError: JetStream is not available.
        """
        try:
            await (await self._open()).delete(claims_key(public_key))
        except nats.errors.Error as error:
            raise self._failed("write", error) from error

    async def _open(self) -> KeyValue:
        try:
            js = await self._connection.jetstream(API_TIMEOUT_S)
        except NotConnectedError as error:
            raise RegistryError(f"the registry is not available: {error}") from None
        try:
            return await js.key_value(self._bucket)
        except js_errors.NotFoundError:
            return await js.create_key_value(api.KeyValueConfig(bucket=self._bucket))

    def _failed(self, what: str, error: Exception) -> RegistryError:
        text = f"cannot {what} the registry {self._bucket}: {error}"
        denied = self._connection.denied if isinstance(error, nats.errors.TimeoutError) else ""
        return RegistryError(f"{text} ({denied})" if denied else text)
