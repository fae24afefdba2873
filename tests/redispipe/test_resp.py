"""Tests of commands that are written without the general encoder."""

from __future__ import annotations

import pytest

from redispipe import resp


@pytest.mark.parametrize("count", [1, 2, 40])
@pytest.mark.parametrize("stream", [b"s", b"relay:stream:7:" + b"x" * 3000])
def test_removals_are_written_as_the_general_encoder_does(stream: bytes, count: int) -> None:
    ids = [b"%d-%d" % (10**9 + number, number**3) for number in range(count)]
    assert resp.xdel(stream, ids) == resp.command("XDEL", stream, *ids)
