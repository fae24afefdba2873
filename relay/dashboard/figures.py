"""Formats of numbers, sizes and times, the same on all pages of the console.

A figure is short, and as wide as its kind needs; its title contains the exact value. The page's
script that updates figures (`static/relay_dashboard/figures.js`) follows the same rules; a test
compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from django.utils.html import format_html
from django.utils.safestring import SafeString

from relay.ops.wording import duration, three_digits
from relay.sessions.rates import WINDOW_S

NONE: Final = "-"
"""Text for a missing value, as opposed to zero."""

OVER: Final = f"each second, over the last {WINDOW_S} s"
"""Explanation of rates of sessions, queues and twins."""

_DECIMAL: Final = ("", " k", " M", " G", " T")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Kind(StrEnum):
    """The quantity that a value measures."""

    NUMBER = "number"
    RATE = "rate"
    BYTES = "bytes"
    BYTE_RATE = "byte_rate"
    DURATION = "duration"
    MILLISECONDS = "milliseconds"
    SHARE = "share"


def write(value: float | None, kind: Kind) -> str:
    """Return a value as text.

    Args:
        value: count, count or bytes per second, bytes, (milli)seconds, or a fraction of 1.
        kind: quantity that the value measures.
    """
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞"
    return _WRITERS[kind](value)


def figure(value: float | None, kind: Kind) -> SafeString:
    """Return a value as HTML that scripts can read and update, with the exact value on hover."""
    if value is None:
        return format_html('<span class="c-none">{}</span>', NONE)
    return format_html(
        '<data class="c-figure" value="{}" title="{}">{}</data>',
        f"{value:.12g}",
        exact(value, kind),
        write(value, kind),
    )


def live(value: float | None, kind: Kind, series: str) -> SafeString:
    """Return a figure that follows a series of the page's websocket."""
    return format_html(
        '<data class="c-figure" data-series="{}" data-kind="{}" value="{}" title="{}">{}</data>',
        series,
        kind,
        "" if value is None else f"{value:.12g}",
        "" if value is None else exact(value, kind),
        write(value, kind),
    )


def exact(value: float, kind: Kind) -> str:
    """Return the exact value as text, with its unit."""
    digits = f"{value:,.6f}".rstrip("0").rstrip(".")
    unit = {
        Kind.RATE: " each second",
        Kind.BYTES: " bytes",
        Kind.BYTE_RATE: " bytes each second",
        Kind.DURATION: " seconds",
        Kind.MILLISECONDS: " milliseconds",
    }.get(kind, "")
    return f"{value:.4%}" if kind is Kind.SHARE else f"{digits}{unit}"


def moment(value: datetime | float | None, now: datetime | None = None) -> SafeString:
    """Return a time as its distance from now, with the exact time on hover.

    Args:
        value: time, or unix seconds; 0 and None mean no time. Senders of messages choose some of
            these times, and may choose one that no calendar has.
        now: time that the distance is measured from.
    """
    if not value:
        return format_html('<span class="c-none">{}</span>', NONE)
    try:
        at = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return format_html('<span title="unix second {}">beyond all dates</span>', f"{value:.12g}")
    distance = ((now or datetime.now(UTC)) - at).total_seconds()
    whole_s = int(abs(distance))
    text = f"{duration(whole_s)} ago" if distance >= 0 else f"in {duration(whole_s)}"
    return format_html(
        '<time class="c-moment" datetime="{}" title="{}">{}</time>',
        at.isoformat(timespec="milliseconds"),
        f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        text,
    )


def _number(value: float) -> str:
    """`0`, `0.4`, `12`, `9,999`, `12.3 k`, `4.56 M`."""
    if value < 0:
        return f"-{_number(-value)}"
    if value < 10_000:
        return f"{value:,.0f}" if value >= 99.95 or value == int(value) else three_digits(value)
    step = 0
    while value >= 999.5 and step < len(_DECIMAL) - 1:
        value, step = value / 1000, step + 1
    return f"{three_digits(value)}{_DECIMAL[step]}"


def _bytes(value: float) -> str:
    """`512 B`, `1.5 KiB`, `12.3 GiB`."""
    if value < 0:
        return f"-{_bytes(-value)}"
    step = 0
    while value >= 1023.5 and step < len(_BINARY) - 1:
        value, step = value / 1024, step + 1
    return f"{value:.0f} B" if step == 0 else f"{three_digits(value)} {_BINARY[step]}"


def _share(value: float) -> str:
    """`100 %` and `0 %` only for all and nothing: 0.9999 is `99.99 %`."""
    if 0 < value < 0.0001:
        return "< 0.01 %"
    if 0.9999 < value < 1:
        return "> 99.99 %"
    close = value < 0.01 or value > 0.99
    return f"{round(value * 100, 2 if close else 1):g} %"


_WRITERS: Final[dict[Kind, Callable[[float], str]]] = {
    Kind.NUMBER: _number,
    Kind.RATE: lambda value: f"{_number(value)}/s",
    Kind.BYTES: _bytes,
    Kind.BYTE_RATE: lambda value: f"{_bytes(value)}/s",
    Kind.DURATION: duration,
    Kind.MILLISECONDS: lambda value: duration(value / 1000),
    Kind.SHARE: _share,
}
