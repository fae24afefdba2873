"""Verdicts of the `websockets` library on the same bytes, and sequences of frames to compare.

Two rules are ours alone: text messages are refused, and a length must be in its shortest form.
`expected` says where one of them applies; the library judges everything before that.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from websockets.frames import Opcode
from websockets.protocol import OPEN, SERVER, Protocol

from proto.websocket.budget import MessageBudget
from proto.websocket.events import CloseReceived, InputRefused, PingReceived
from proto.websocket.frames import FrameReader, apply_mask

MAX_MESSAGE_BYTES = 70_000  # above 2 ** 16: some valid messages need the longest form of a length


class Verdict(NamedTuple):
    """Result of reading some bytes.

    Attributes:
        messages: complete messages.
        pings: payloads of the pings.
        close: code and payload of the peer's close frame.
        refused: close code to send to the peer.
    """

    messages: list[bytes]
    pings: list[bytes]
    close: tuple[int, bytes] | None
    refused: int | None


def ours(
    data: bytes, cuts: list[int], limit: int = MAX_MESSAGE_BYTES, kept: Collection[int] = ()
) -> Verdict:
    """Return `FrameReader`'s verdict when reads end at the given positions.

    Args:
        kept: numbers of the reads that are only stored, for the next one.
    """
    budget = MessageBudget()
    reader = FrameReader(limit, budget)
    messages: list[bytes] = []
    start = 0
    for number, cut in enumerate([*cuts, len(data)]):
        if number in kept:
            reader.keep_data(data[start:cut])
        else:
            messages += reader.receive_data(data[start:cut])
        start = cut
        assert 0 <= budget.used_bytes <= max(limit + 200, len(data) if kept else 0)
    while reader.more:
        messages += reader.receive_data(b"")
    pings = [event.payload for event in reader.events if isinstance(event, PingReceived)]
    closes = [event for event in reader.events if isinstance(event, CloseReceived)]
    refusals = [event for event in reader.events if isinstance(event, InputRefused)]
    assert len(closes) + len(refusals) <= 1
    reader.close()
    assert budget.used_bytes == 0
    return Verdict(
        messages,
        pings,
        (closes[0].code, closes[0].payload) if closes else None,
        int(refusals[0].fault.code) if refusals else None,
    )


def library(data: bytes, limit: int = MAX_MESSAGE_BYTES) -> Verdict:
    """Return the library's verdict, without text messages."""
    protocol = Protocol(SERVER, state=OPEN, max_size=limit)
    protocol.receive_data(data)
    messages: list[bytes] = []
    pings: list[bytes] = []
    close: tuple[int, bytes] | None = None
    parts: list[bytes] = []
    binary = True
    for frame in protocol.events_received():
        assert hasattr(frame, "opcode")
        payload = bytes(frame.data)
        if frame.opcode is Opcode.PING:
            pings.append(payload)
        elif frame.opcode is Opcode.CLOSE:
            assert protocol.close_rcvd is not None
            close = (int(protocol.close_rcvd.code), payload)
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                parts = []
                binary = frame.opcode is Opcode.BINARY
            parts.append(payload)
            if frame.fin and binary:
                messages.append(b"".join(parts))
    refused = None
    if protocol.parser_exc is not None:
        assert protocol.close_sent is not None
        refused = int(protocol.close_sent.code)
    return Verdict(messages, pings, close, refused)


@dataclass
class FrameSpec:
    """One frame, well-formed or not; always complete unless too large."""

    opcode: int
    payload: bytes
    final: bool = True
    reserved: int = 0
    masked: bool = True
    length_bytes: int | None = None  # 0, 2 or 8; None: the shortest form
    claimed_bytes: int | None = None  # a false length in the header, too large
    mask: bytes = field(default=b"\x11\x22\x33\x44")

    @property
    def shortest(self) -> int:
        size = len(self.payload) if self.claimed_bytes is None else self.claimed_bytes
        return 0 if size < 126 else 2 if size < 0x10000 else 8

    def serialize(self) -> bytes:
        size = len(self.payload) if self.claimed_bytes is None else self.claimed_bytes
        form = self.shortest if self.length_bytes is None else self.length_bytes
        first = (0x80 if self.final else 0) | (self.reserved << 4) | self.opcode
        bit = 0x80 if self.masked else 0
        if form == 0:
            head = bytes((first, bit | size))
        else:
            head = bytes((first, bit | (126 if form == 2 else 127))) + size.to_bytes(form, "big")
        if not self.masked:
            return head + self.payload
        return head + self.mask + apply_mask(self.payload, self.mask)


def expected(frames: list[FrameSpec]) -> Verdict:
    """Return the library's verdict, up to where one of our own rules applies."""
    before = b""
    fragmented = False
    for frame in frames:
        verdict = library(before)
        if verdict.refused is not None or verdict.close is not None:
            return verdict
        own = None
        if frame.opcode < 8 and (frame.opcode == 0) == fragmented:
            if frame.opcode == 1 and frame.masked and not frame.reserved:
                own = 1003
            fragmented = not frame.final
        if own is None and frame.length_bytes not in (None, frame.shortest) and frame.masked:
            own = 1002
        if own is not None:
            return verdict._replace(refused=own)
        before += frame.serialize()
    return library(before)


def random_frames(rng: random.Random) -> list[FrameSpec]:
    """Return fragmented messages mixed with control frames, and sometimes one fault."""
    frames: list[FrameSpec] = []
    for _ in range(rng.randint(1, 6)):
        pieces = rng.choice((1, 1, 1, 2, 3, 5))
        for piece in range(pieces):
            while rng.random() < 0.2:
                opcode = rng.choice((9, 10))
                frames.append(FrameSpec(opcode, rng.randbytes(rng.choice((0, 1, 5, 125)))))
            size = rng.choice((0, 1, 2, 60, 125, 126, 127, 300, 1000))
            if rng.random() < 0.03:
                size = rng.choice((0xFFFF, 0x10000, 0x10001))
            frames.append(
                FrameSpec(
                    2 if piece == 0 else 0,
                    rng.randbytes(size),
                    final=piece == pieces - 1,
                    mask=rng.randbytes(4),
                )
            )
    if rng.random() < 0.6:
        place = rng.randint(0, len(frames))
        faulty = _faulty(rng)
        before = [frame for frame in frames[:place] if frame.opcode < 8]
        if faulty.claimed_bytes is not None and before and not before[-1].final:
            faulty.opcode = 0  # one fault at a time: which of two is reported is undefined
        frames.insert(place, faulty)
    if rng.random() < 0.3:
        frames.append(FrameSpec(8, _close_payload(rng)))
        frames.append(FrameSpec(2, b"after the close"))
    return frames


def _close_payload(rng: random.Random) -> bytes:
    code = rng.choice(
        (1000, 1001, 1004, 1005, 1006, 1007, 1012, 1014, 1015, 2999, 3000, 4999, 5000)
    )
    reason = rng.choice((b"", b"bye", "ende ✓".encode(), b"\xff\xfe", b"x" * 123))
    return rng.choice((b"", b"\x03", code.to_bytes(2, "big") + reason))


def _faulty(rng: random.Random) -> FrameSpec:
    frame = FrameSpec(rng.choice((0, 1, 2, 2, 8, 9, 10)), rng.randbytes(rng.choice((0, 5, 125))))
    match rng.randint(0, 8):
        case 0:
            frame.reserved = rng.randint(1, 7)
        case 1:
            frame.opcode = rng.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15))
        case 2:
            frame.masked = False
        case 3:
            frame = FrameSpec(rng.choice((8, 9, 10)), b"x", final=False)
        case 4:
            frame = FrameSpec(rng.choice((8, 9, 10)), rng.randbytes(rng.choice((126, 200))))
        case 5:
            frame = FrameSpec(
                2, b"", claimed_bytes=rng.choice((MAX_MESSAGE_BYTES + 1, 2**40, 2**63))
            )
        case 6:
            frame = FrameSpec(2, b"x" * 5, length_bytes=rng.choice((2, 8)))
        case 7:
            frame = FrameSpec(2, b"x" * 300, length_bytes=8)
        case 8:
            frame = FrameSpec(1, b"text", final=rng.random() < 0.7)
    return frame
