"""A process that checks signatures and does nothing else (see `relay.federation.verification`).

It reads records of a fixed size from its standard input, a socket, and writes one byte for each in
the same order: 1 if the signature is valid, else 0. It ends with its parent, which closes the
socket.

    32 bytes   account
    16 bytes   what was signed
    65 bytes   signature
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Final

from proto.identity.bounds import ACCOUNT_BYTES, SIGNATURE_BYTES
from proto.identity.errors import SignatureError
from proto.identity.signing import verify
from proto.rmb.bounds import CHALLENGE_BYTES

_RECORD: Final = struct.Struct(f"{ACCOUNT_BYTES}s{CHALLENGE_BYTES}s{SIGNATURE_BYTES}s")
RECORD_BYTES: Final = _RECORD.size
ROUND: Final = 32
"""Records of one read, which take some 2 ms: their verdicts are sent before more are read."""


def fits(account: bytes, digest: bytes, signature: bytes) -> bool:
    """Check whether the holder of the account has signed this."""
    try:
        verify(account, digest, signature)
    except SignatureError:
        return False
    return True


def serve(connection: socket.socket) -> None:
    """Answer requests until the peer closes the connection."""
    data = b""
    while True:
        received = connection.recv(ROUND * RECORD_BYTES - len(data))
        if not received:
            return
        data += received
        whole = len(data) - len(data) % RECORD_BYTES
        records = _RECORD.iter_unpack(data[:whole])
        connection.sendall(bytes([fits(*record) for record in records]))
        data = data[whole:]


if __name__ == "__main__":
    try:
        with socket.socket(fileno=sys.stdin.fileno()) as own:
            serve(own)
    except ConnectionError:
        pass  # the parent is gone
