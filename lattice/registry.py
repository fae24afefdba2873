"""The registry of claims: without an entry there, hosts refuse the calls of a program to actors."""

from __future__ import annotations

from typing import Final

import nats.errors
from nats.js import api
from nats.js import errors as js_errors
from nats.js.kv import KeyValue

from lattice.connection import LatticeConnection
from lattice.errors import NotConnectedError, RegistryError
from proto.lattice.registry import (
    ActorClaims,
    ProviderClaims,
    bucket_name,
    claims_key,
    decode_claims,
)

API_TIMEOUT_S: Final = 5.0


class Registry:
    """Reads and writes claims; nothing in the registry is signed."""

    def __init__(self, connection: LatticeConnection) -> None:
        self._connection = connection
        self._bucket = bucket_name(connection.options.lattice)

    async def put(self, claims: ActorClaims | ProviderClaims) -> None:
        """Write an entry.

        Raises:
            RegistryError: JetStream is not available, or refuses it.
        """
        try:
            await (await self._open()).put(claims_key(claims.subject), claims.encode())
        except nats.errors.Error as error:
            raise RegistryError(f"cannot write the registry {self._bucket}: {error}") from error

    async def get(self, public_key: str) -> ActorClaims | ProviderClaims | None:
        """Return the entry of an actor or a provider, if there is one.

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
            raise RegistryError(f"cannot read the registry {self._bucket}: {error}") from error
        return decode_claims(key, entry.value or b"")

    async def delete(self, public_key: str) -> None:
        """Delete an entry.

        Raises:
            RegistryError: JetStream is not available.
        """
        try:
            await (await self._open()).delete(claims_key(public_key))
        except nats.errors.Error as error:
            raise RegistryError(f"cannot write the registry {self._bucket}: {error}") from error

    async def _open(self) -> KeyValue:
        try:
            js = await self._connection.jetstream(API_TIMEOUT_S)
        except NotConnectedError as error:
            raise RegistryError(f"the registry is not available: {error}") from None
        try:
            return await js.key_value(self._bucket)
        except js_errors.NotFoundError:
            return await js.create_key_value(api.KeyValueConfig(bucket=self._bucket))
