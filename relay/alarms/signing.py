"""The signature of a webhook: HMAC-SHA256 over its time and its body. Pure.

    RMB-Alarm-Timestamp: 1700000000
    RMB-Alarm-Signature: v1=<hex of HMAC-SHA256(secret, "1700000000." + body)>

The receiver computes the same, compares in constant time, and refuses what is older than some
minutes: `verify` does it, and `docs/operate/alarms.md` has it in a few lines of its own.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

TIMESTAMP_HEADER: Final = "RMB-Alarm-Timestamp"
SIGNATURE_HEADER: Final = "RMB-Alarm-Signature"
EVENT_HEADER: Final = "RMB-Alarm-Event"
TOLERANCE_S: Final = 300.0

_VERSION: Final = "v1="


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The value of the signature header."""
    signed = str(timestamp).encode() + b"." + body
    return _VERSION + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def verify(secret: str, timestamp: str, signature: str, body: bytes, now: float) -> bool:
    """Whether a request is from who has the secret, and fresh."""
    if not timestamp.isdecimal() or len(timestamp) > 12:
        return False
    if abs(now - int(timestamp)) > TOLERANCE_S:
        return False
    expected = sign(secret, int(timestamp), body)
    return hmac.compare_digest(expected.encode(), signature.encode())
