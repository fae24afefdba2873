"""Python client for RMB that needs no gateway and no Redis.

    async with Client(secret, ["wss://relay.example"], "https://relay.example") as client:
        reply = await client.call(7, "calc.add", [1, 2], timeout=10)
        print(reply.json())

`Client` is for programs with an event loop, `SyncClient` for all others, and `Hub` for many twins
over one connection. Errors are `PeerError`s:

    PeerError
    |- TwinsAwayError        no source of twins can answer whether a twin exists
    |- ConnectError          the client could not start: no twin of its own, or no relay
    `- CallError             a request has no usable answer
       |- TwinNotFoundError  the requested twin does not exist
       |- RemoteError        the requested twin answered with an error
       |- RelayError         a relay could not deliver the request, or refused it
       |  `- TooLargeError   the message is larger than the relays accept; also a ValueError
       |- ExpiredError       no answer came in time; also a TimeoutError
       `- UnverifiedError    the answer is not from the requested twin
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
