"""Envelopes parsed into shared blocks of memory.

The protobuf runtime allocates at least two pieces of memory for each message it parses, and hands
the free pages of the whole process back to the kernel after each ten thousand pieces it has freed
(`malloc_trim`, on glibc). A relay that handles 60,000 messages a second so did it twelve times a
second, and walked all that it holds for slow readers each time. Messages that are fields of one
other message share its memory, which is freed in few pieces with the last of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proto.rmb import types_pb2 as pb

BLOCK_BYTES: Final = 64 << 10
"""Of one block, about: it lives as long as one of its envelopes does."""

ENVELOPE_BYTES: Final = 256
"""What an envelope takes beside the bytes it was parsed from, about."""


def block_parser() -> Callable[[bytes], pb.Envelope]:
    """A parser as `Envelope.FromString`, for one that keeps few of the envelopes it gets.

    Returns:
        Parses one message; it raises `google.protobuf.message.DecodeError`.
    """
    add = pb.Envelopes().envelopes.add
    left_bytes = BLOCK_BYTES

    def parse(raw: bytes) -> pb.Envelope:
        nonlocal add, left_bytes
        left_bytes -= len(raw) + ENVELOPE_BYTES
        if left_bytes < 0:
            add = pb.Envelopes().envelopes.add
            left_bytes = BLOCK_BYTES - len(raw) - ENVELOPE_BYTES
        envelope = add()
        envelope.MergeFromString(raw)
        return envelope

    return parse
