"""Clock differences of twins, measured with the times in their tokens."""

from __future__ import annotations

from relay.sessions.clocks import TWINS, TwinClocks


def _figures(seen: int, wrong: int, off_s: float) -> dict[str, float]:
    return {
        "relay_twin_clocks_seen": seen,
        "relay_twin_clocks_wrong": wrong,
        "relay_twin_clocks_off_seconds": off_s,
    }


def test_the_last_of_each_twin_counts() -> None:
    clocks = TwinClocks()
    assert clocks.figures() == _figures(0, 0, 0)
    for twin, off_s in ((1, -602), (2, 0), (3, 30), (4, -700), (5, -5), (6, -600)):
        clocks.seen(twin, off_s)
    assert clocks.figures() == _figures(6, 3, -602)
    clocks.seen(1, 0)  # its clock was corrected
    assert clocks.figures() == _figures(6, 2, -650)


def test_the_latest_twins_are_kept() -> None:
    clocks = TwinClocks()
    for twin in range(1, 100):
        clocks.seen(twin, 100 if twin <= 50 else 0)
    clocks.seen(50, 100)
    assert clocks.figures() == _figures(TWINS, 15, 100)
