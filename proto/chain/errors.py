"""What can be wrong with chain values.

    ChainFormatError
    |- ScaleError        bytes that are no SCALE value of the wanted kind
    |- BoundError        a field above its bound
    |- RelayTextError    a relay text the chain would refuse
    `- HeaderError       a block header that is not one

Texts name the field and the bound.
"""

from __future__ import annotations


class ChainFormatError(Exception):
    """Base of everything this package raises on bad input."""


class ScaleError(ChainFormatError):
    """Bytes that do not decode.

    Attributes:
        field: name of the field that was being read.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class BoundError(ChainFormatError):
    """A field is larger than allowed.

    Attributes:
        field: name of the field.
        size: what was found.
        bound: what is allowed.
        unit: what both are counted in; "" for the value itself.
    """

    def __init__(self, field: str, size: int, bound: int, unit: str = "bytes") -> None:
        # A compact number can have 160 digits, which nobody reads.
        shown = f"{size}" if size < 2**136 else f"about 2^{size.bit_length()}"
        has = f"has {shown} {unit}" if unit else f"is {shown}"
        super().__init__(f"{field} {has}, at most {bound} is allowed")
        self.field = field
        self.size = size
        self.bound = bound
        self.unit = unit


class RelayTextError(ChainFormatError):
    """A relay text that tfchain answers with InvalidRelayAddress."""


class HeaderError(ChainFormatError):
    """JSON that is no block header."""
