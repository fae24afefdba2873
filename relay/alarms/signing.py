"""Signatures of webhooks: HMAC-SHA256 over the time and the body. Pure.

    RMB-Alarm-Timestamp: 1700000000
    RMB-Alarm-Signature: v1=<hex of HMAC-SHA256(secret, "1700000000." + body)>

The receiver computes the same value, compares it in constant time, and refuses requests that are
older than some minutes. `verify` does this; `docs/operate/alarms.md` shows it in a few lines.
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
    """Return the value of the signature header."""
    signed = str(timestamp).encode() + b"." + body
    return _VERSION + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def verify(secret: str, timestamp: str, signature: str, body: bytes, now: float) -> bool:
    """Check whether a request was signed with the secret and is recent."""
    if not timestamp.isdecimal() or len(timestamp) > 12:
        return False
    if abs(now - int(timestamp)) > TOLERANCE_S:
        return False
    expected = sign(secret, int(timestamp), body)
    return hmac.compare_digest(expected.encode(), signature.encode())
