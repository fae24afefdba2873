"""Streams, if enabled: their listeners, and limits that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from django.conf import settings

from relay.ops.doctor import served
from relay.ops.doctor.finding import Finding, ok, warning

LONG_S: Final = 60
"""Seconds within which all streams of one connection should be able to sign in."""


def listeners() -> Iterator[Finding]:
    """Check that every worker serves streams, and that their separate listeners answer."""
    yield from served.everywhere("mux", "streams")


def limits() -> Iterator[Finding]:
    """Check for limits that contradict each other."""
    if not settings.RMB.mux.enabled:
        return
    yield from list(_at_odds()) or [ok("mux.limits", "the limits of streams agree with each other")]


def _at_odds() -> Iterator[Finding]:
    mux, handshakes = settings.RMB.mux, settings.RMB.relay.handshakes_per_ip_per_s
    if handshakes and mux.max_streams > LONG_S * handshakes:
        yield warning(
            "mux.limits",
            f"mux.max_streams is {mux.max_streams:,}, and one address may sign in {handshakes:,} "
            f"times a second: a full connection needs {mux.max_streams // handshakes:,} s",
            "raise relay.handshakes_per_ip_per_s, or lower mux.max_streams",
        )
    for smaller, larger in (
        ("stream_bytes", "connection_bytes"),
        ("connection_bytes", "buffered_bytes"),
    ):
        low, high = getattr(mux, smaller), getattr(mux, larger)
        if low > high:
            yield warning(
                "mux.limits",
                f"mux.{smaller} is {low:,}, more than mux.{larger}, {high:,}: the former has no "
                "effect",
                f"raise mux.{larger}, or lower mux.{smaller}",
            )
