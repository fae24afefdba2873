"""Keys of the recorded vectors, and calls made with them."""

from __future__ import annotations

from typing import Any

from proto.lattice.entity import Entity
from proto.lattice.invocation import make
from proto.lattice.messages import Invocation
from proto.lattice.nkeys import KeyKind, KeyPair
from tests.interop.recorded import recorded_lattice

VECTORS = recorded_lattice()
CLUSTER = KeyPair(KeyKind.CLUSTER, bytes(range(0x00, 0x20)))
HOST = KeyPair(KeyKind.HOST, bytes(range(0x20, 0x40)))
ACTOR = KeyPair(KeyKind.ACTOR, bytes(range(0x40, 0x60)))
PROVIDER = KeyPair(KeyKind.PROVIDER, bytes(range(0x60, 0x80)))
ORIGIN = Entity.actor(ACTOR.public)
TARGET = Entity.provider(PROVIDER.public, "default", "wasmcloud:keyvalue")
ID = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
JTI = "Vector0000000000000001"
IAT = 1_700_000_000


def call(payload: bytes = b"\xa5mykey", **changes: Any) -> Invocation:
    """Make the call of the first vector, with any changes."""
    arguments: dict[str, Any] = {
        "origin": ORIGIN,
        "target": TARGET,
        "operation": "KeyValue.Get",
        "host_id": HOST.public,
        "cluster": CLUSTER,
        "invocation_id": ID,
        "jti": JTI,
        "iat": IAT,
    }
    return make(payload=payload, **{**arguments, **changes})
