"""A caller: a program that calls actors and providers and offers no operations itself."""

from __future__ import annotations

import secrets

from lattice.calling import Calling
from lattice.connection import LatticeConnection
from proto.lattice.entity import Entity
from proto.lattice.nkeys import KeyKind, KeyPair, decode_public


class LatticeCaller(Calling):
    """Makes calls in the name of an actor, or of a provider's link."""

    def __init__(self, connection: LatticeConnection, origin: Entity | str) -> None:
        """Create a caller.

        Args:
            connection: a connection that is open, or is opened later.
            origin: the caller's entity; a string is an actor's key. Providers require a link to it,
                actors on hosts require a registry entry.

        Raises:
            KeyFormatError: a key is malformed.
        """
        if isinstance(origin, str):
            origin = Entity.actor(origin)
        decode_public(origin.public_key, KeyKind.ACTOR, KeyKind.PROVIDER)
        super().__init__(connection, origin, host_id_of(connection))


def host_id_of(connection: LatticeConnection) -> str:
    """Return the host id of the options, or else a new valid host key for this process.

    Raises:
        KeyFormatError: the host id of the options is not a host's key.
    """
    if host_id := connection.options.host_id:
        decode_public(host_id, KeyKind.HOST)
        return host_id
    return KeyPair.of_random(KeyKind.HOST, secrets.token_bytes(32)).public
