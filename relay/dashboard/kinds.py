"""How the console formats values of the history's series."""

from __future__ import annotations

from typing import Final

from relay.dashboard.figures import Kind
from relay.history import series
from relay.history.series import BY_KEY

_KINDS: Final = {
    series.Kind.RATE: Kind.RATE,
    series.Kind.NUMBER: Kind.NUMBER,
    series.Kind.DURATION: Kind.DURATION,
    series.Kind.RATIO: Kind.SHARE,
}


def kind_of(key: str) -> Kind:
    """Return how values of a series are formatted."""
    found = BY_KEY[key]
    if found.kind is series.Kind.BYTES:
        return Kind.BYTE_RATE if found.unit == "B/s" else Kind.BYTES
    return _KINDS[found.kind]
