"""How the console, the commands and the alarms format numbers and lengths of time.

The console's script (`relay_dashboard/figures.js`) formats times by the same rules.
"""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Format a length of time in at most two units: `3 d 4 h`, `12 min`, `8 s`, `1.5 ms`."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if 0 < seconds < 1:
        milliseconds = seconds * 1000
        return f"{three_digits(milliseconds)} ms" if milliseconds >= 0.1 else "< 0.1 ms"
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h" if hours and days < 10 else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min" if minutes else f"{whole} s"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Format a number of things: `1 worker`, `1,200 workers`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def three_digits(value: float) -> str:
    """Format a number with three significant digits, without trailing zeros."""
    if value >= 99.95:
        return f"{value:.0f}"
    text = f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")
