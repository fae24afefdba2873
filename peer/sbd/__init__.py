"""SBD client for Python: packets between public keys, through an SBD server.

    async with SbdClient("wss://sbd.example") as client:
        await client.send(key, b"hello")
        async for key, message in client:
            ...

`E2eClient` has the same methods and encrypts. Errors are `SbdError`s (`proto.sbd.errors`):

    SbdError
    |- ConnectError        the server could not be reached, or refused
    |- ClosedError         the connection has ended
    |- MessageSizeError    a message is too long
    |- KeyFormatError      not a key
    `- PeerError           it is not possible to encrypt for this key
       `- TooManyPeersError
"""

from peer.sbd.client import ConnectError, SbdClient
from peer.sbd.e2e import E2eClient
from proto.sbd.errors import (
    ClosedError,
    KeyFormatError,
    MessageSizeError,
    PeerError,
    SbdError,
    TooManyPeersError,
)
from proto.sbd.frames import key_of_path, path_of_key

__all__ = [
    "ClosedError",
    "ConnectError",
    "E2eClient",
    "KeyFormatError",
    "MessageSizeError",
    "PeerError",
    "SbdClient",
    "SbdError",
    "TooManyPeersError",
    "key_of_path",
    "path_of_key",
]
