"""A worker's counts of streams for `/metrics`, by reason and code."""

from __future__ import annotations

from proto.mux.messages import framed
from proto.rmb.reasons import SessionReason
from relay.ops.metric_names import BY_NAME
from tests.relay.mux.sides import Pair


async def test_resets_are_counted_by_code() -> None:
    pair = Pair()
    for code in (0, 4003, 1006, 12345, 2**62 - 1):
        stream_id, _ = await pair.sign_in()
        pair.client.mux.cancel(stream_id, code)
        await pair.settle()
    _, session = await pair.sign_in()
    session.socket.close(4005, "idle")
    await pair.settle()
    found = pair.server.figures()
    resets = {name: count for name, count in found.items() if name.startswith("mux_resets")}
    assert resets == {
        'mux_resets_total{by="client",code="0"}': 1,
        'mux_resets_total{by="client",code="4003"}': 1,
        'mux_resets_total{by="client",code="other"}': 3,
        'mux_resets_total{by="relay",code="4005"}': 1,
    }


async def test_refusals_and_ends_are_counted_by_reason() -> None:
    pair = Pair(max_streams=2)
    for token in (b"no", bytes(10_000)):
        stream_id = pair.client.mux.open_stream(0)
        pair.client.mux.write(stream_id, framed([token]))
        await pair.settle()
        assert pair.read(stream_id)
        await pair.settle()
    for _ in range(3):
        pair.client.mux.open_stream(0)
    await pair.settle()
    pair.relay.end("idle")
    pair.relay.closed(1000, None)
    found = pair.server.figures()
    for series, count in (
        (f'mux_streams_refused_total{{reason="{SessionReason.BANNED}"}}', 1),
        (f'mux_streams_refused_total{{reason="{SessionReason.UNAUTHORIZED}"}}', 1),
        ('mux_streams_refused_total{reason="max_streams"}', 1),
        ('mux_ended_total{reason="idle"}', 1),
    ):
        assert found.get(series) == count, (series, found)
    assert {name.partition("{")[0] for name in found} <= BY_NAME.keys()
