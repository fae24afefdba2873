"""How the admin's lists and the alarms write long values and lengths of time."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString


def cut(text: str) -> SafeString:
    """A value of any length: what does not fit is in its title."""
    return format_html('<span class="relay-cut" title="{}">{}</span>', text, text)


def duration(seconds: float) -> str:
    """A length of time in the two units that matter: `3 d 4 h`, `12 min`, `8 s`."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{whole} s"
