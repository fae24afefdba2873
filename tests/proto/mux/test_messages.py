"""Tests of messages in the bytes of a stream, cut at any place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.mux import varint
from proto.mux.messages import MessageReader, MessageTooLargeError, framed

MAX_BYTES = 100_000
SIZES = st.sampled_from((0, 1, 63, 64, 65, 255, 256, 16_383, 16_384, 70_000, MAX_BYTES))


def long_form(value: int, width: int) -> bytes:
    """Encode a varint with this width, which may be larger than necessary."""
    prefix = {1: 0, 2: 1, 4: 2, 8: 3}[width]
    return (value | prefix << (8 * width - 2)).to_bytes(width, "big")


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """Draw messages, and a stream that carries them with lengths of any width."""
    messages = [
        bytes((draw(st.integers(0, 255)),)) * size for size in draw(st.lists(SIZES, max_size=8))
    ]
    stream = b""
    for message in messages:
        least = len(varint.encode(len(message)))
        width = draw(st.sampled_from([each for each in (1, 2, 4, 8) if each >= least]))
        stream += long_form(len(message), width) + message
    return messages, stream


@given(streams(), st.data())
def test_any_cut_gives_the_same_messages(
    carried: tuple[list[bytes], bytes], data: st.DataObject
) -> None:
    messages, stream = carried
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    reader = MessageReader(MAX_BYTES)
    received: list[bytes] = []
    taken = 0
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += reader.receive_data(stream[start:end])
        taken += end - start
        assert reader.held_bytes <= MAX_BYTES + 8
    assert received == messages
    assert all(type(message) is bytes for message in received)
    assert reader.held_bytes == 0


def test_one_byte_at_a_time() -> None:
    messages = [b"", b"a" * 63, b"b" * 64, b"c" * 20_000, b"d"]
    reader = MessageReader(MAX_BYTES)
    received = [
        message for byte in framed(messages) for message in reader.receive_data(bytes((byte,)))
    ]
    assert received == messages


@given(st.lists(SIZES, max_size=5))
def test_framed_uses_the_shortest_lengths(sizes: list[int]) -> None:
    messages = [b"x" * size for size in sizes]
    expected = b"".join(varint.encode(len(each)) + each for each in messages)
    assert framed(messages) == expected


def test_what_is_held_is_counted_until_the_message_is_whole() -> None:
    reader = MessageReader(MAX_BYTES)
    assert reader.receive_data(long_form(1000, 4)[:3]) == []
    assert reader.held_bytes == 3
    assert reader.receive_data(long_form(1000, 4)[3:] + b"x" * 999) == []
    assert reader.held_bytes == 4 + 999
    assert reader.receive_data(b"x") == [b"x" * 1000]
    assert reader.held_bytes == 0


@pytest.mark.parametrize("cut", [0, 1, 3, 4])
def test_a_message_above_the_bound_is_refused_by_its_length_alone(cut: int) -> None:
    stream = framed([b"whole"]) + long_form(MAX_BYTES + 1, 4)
    at = len(framed([b"whole"])) + cut
    reader = MessageReader(MAX_BYTES)
    with pytest.raises(MessageTooLargeError, match="of 100001 bytes: at most 100000 ") as caught:
        before = reader.receive_data(stream[:at])
        assert before == [b"whole"]
        reader.receive_data(stream[at:])
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (MAX_BYTES + 1, MAX_BYTES)
    assert caught.value.messages == ([b"whole"] if cut == 4 else [])


def test_a_message_at_the_bound_is_taken() -> None:
    message = b"x" * MAX_BYTES
    assert MessageReader(MAX_BYTES).receive_data(framed([message])) == [message]
