"""RMB from Python, without a gateway and without Redis.

    async with Client(secret, ["wss://relay.example"], "https://relay.example") as client:
        reply = await client.call(7, "calc.add", [1, 2], timeout=10)
        print(reply.json())

`Client` for programs with an event loop, `SyncClient` for all others, `Hub` for many twins over one
connection. Errors are `PeerError`s:

    PeerError
    |- TwinsAwayError        no source of twins can say whether a twin exists
    |- ConnectError          the client could not begin: no twin of its own, or no relay
    `- CallError             a request has no answer that can be used
       |- TwinNotFoundError  there is no such twin
       |- RemoteError        the twin that was asked answers with an error
       |- RelayError         a relay could not deliver it, or would not
       |  `- TooLargeError   it is larger than the relays take; a ValueError too
       |- ExpiredError       nobody answered in time; a TimeoutError too
       `- UnverifiedError    the answer is not from the twin that was asked
"""

from peer.client.bodies import Reply
from peer.client.client import Client
from peer.client.hub import Hub
from peer.client.sync import SyncClient
from peer.errors import (
    CallError,
    ConnectError,
    ExpiredError,
    PeerError,
    RelayError,
    RemoteError,
    TooLargeError,
    TwinNotFoundError,
    TwinsAwayError,
    UnverifiedError,
)
from peer.identity import Identity, read_secret
from peer.modules.api import NO_ANSWER, CommandError, Module, Request, Response
from peer.twins import Twin, TwinSource
from proto.identity.errors import SecretError
from proto.rmb.address import Address

__all__ = [
    "NO_ANSWER",
    "Address",
    "CallError",
    "Client",
    "CommandError",
    "ConnectError",
    "ExpiredError",
    "Hub",
    "Identity",
    "Module",
    "PeerError",
    "RelayError",
    "RemoteError",
    "Reply",
    "Request",
    "Response",
    "SecretError",
    "SyncClient",
    "TooLargeError",
    "Twin",
    "TwinNotFoundError",
    "TwinSource",
    "TwinsAwayError",
    "UnverifiedError",
    "read_secret",
]
