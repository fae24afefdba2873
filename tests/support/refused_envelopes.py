"""Envelopes that a relay refuses from another one, with the answer and the reason for each."""

from __future__ import annotations

import time

from proto.identity import signing
from proto.rmb import challenge
from proto.rmb import types_pb2 as pb
from tests.support import envelopes
from tests.support.federation_client import signed
from tests.support.identities import Twin
from tests.support.world import (
    BEYOND_TWIN,
    NO_RELAY_TWIN,
    UNKNOWN_TWIN,
    UNUSABLE_TWIN,
    fresh_twins,
)
from tests.support.world import ELSEWHERE_TWIN as FAR

DAY_S = 86_400


def _ed25519(twin: Twin) -> signing.SigningKey:
    return signing.SigningKey.from_mini_secret(twin.mini_secret, signing.KeyType.ED25519)


def refused_envelopes() -> dict[str, tuple[int, pb.Envelope | bytes, str]]:
    """Return envelopes by name, with the status and the reason under which they are counted."""
    one, two = fresh_twins(2)
    here = (one.id, None)
    unsigned = envelopes.request((FAR.id, None), here)
    foreign = envelopes.request((FAR.id, None), here)
    challenge.sign(foreign, two.signing_key)
    changed = signed(FAR, here, b"pay 1")
    changed.plain = b"pay 2"
    resent = signed(FAR, here)
    resent.destination.connection = "x"
    short = signed(FAR, here)
    short.signature = short.signature[:64]
    other_scheme = envelopes.request((FAR.id, None), here)
    challenge.sign(other_scheme, _ed25519(FAR))
    nobody = signed(FAR, here)
    nobody.source.twin = 0
    garbage = signed(FAR, here)
    garbage.signature = b"s" + bytes(64)
    unsaid = pb.Envelope(uid="u")
    unsaid.destination.twin = one.id
    unsaid.error.message = "e" * 4096
    now_s = int(time.time())
    loaded = pb.Envelope(uid="u", plain=b"nobody signed this")
    loaded.destination.twin = one.id
    loaded.error.message = "destination offline"
    return {
        "empty": (400, b"", "empty"),
        "garbage": (400, b"\xff" * 100, "unparsable"),
        "json": (400, b'{"uid": "x"}', "unparsable"),
        "no destination": (400, signed(FAR, None), "missing_destination"),
        "destination twin 0": (400, signed(FAR, (0, None)), "missing_destination"),
        "unknown twin": (403, signed(FAR, (UNKNOWN_TWIN.id, None)), "unknown_twin"),
        "twin above the highest": (403, signed(FAR, (BEYOND_TWIN.id, None)), "unknown_twin"),
        "twin without relay": (403, signed(FAR, (NO_RELAY_TWIN.id, None)), "no_relay"),
        "twin of none": (403, signed(FAR, (UNUSABLE_TWIN.id, None)), "no_usable_relay"),
        "twin of another relay": (403, signed(one, (FAR.id, None)), "not_here"),
        "unsigned": (403, unsigned, "bad_signature"),
        "signed by another twin": (403, foreign, "bad_signature"),
        "changed": (403, changed, "bad_signature"),
        "for another session": (403, resent, "bad_signature"),
        "short signature": (403, short, "bad_signature"),
        "zeros for a signature": (403, garbage, "bad_signature"),
        "another key of the twin": (403, other_scheme, "bad_signature"),
        "no source": (403, nobody, "bad_signature"),
        "error of a relay with a payload": (403, loaded, "bad_signature"),
        "long error of a relay": (413, unsaid, "too_large"),
        "of eleven days ago": (403, signed(FAR, here, timestamp=now_s - 11 * DAY_S), "too_old"),
        "of two days ago": (
            403,
            signed(FAR, here, timestamp=now_s - 2 * DAY_S, expiration=DAY_S - 300),
            "too_old",
        ),
        "unknown source": (403, signed(UNKNOWN_TWIN, here), "unknown_source"),
        "absent and in a hurry": (404, signed(FAR, here, tags="fail-fast"), "offline_failfast"),
        "long uid": (413, signed(FAR, here, uid="u" * 300), "too_large"),
        "long tags": (413, signed(FAR, here, tags="t" * 1100), "too_large"),
        "many relays": (
            413,
            signed(FAR, here).SerializeToString() + b"\x8a\x01\x00" * 2000,
            "too_large",
        ),
        "many fields": (
            413,
            signed(FAR, here).SerializeToString() + b"\x8a\x01\x00" * 6000,
            "too_large",
        ),
        "long connection": (413, signed(FAR, (one.id, "c" * 129)), "too_large"),
        "long source connection": (413, signed(FAR, here, sid="c" * 129), "too_large"),
    }
