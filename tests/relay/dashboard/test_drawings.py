"""Heat maps and curves, as the server draws them."""

from __future__ import annotations

import pytest
from django.template.loader import render_to_string

from relay.dashboard import curves, heat
from relay.dashboard.figures import Kind


def test_levels_grow_with_the_logarithm() -> None:
    assert [heat.level(value, 10**6) for value in (0, 1, 10, 999, 10**5, 10**6)] == [
        0, 1, 2, 4, 7, 8,
    ]  # fmt: skip
    assert heat.level(5, 0) == 0 and heat.level(1, 1) == heat.LEVELS


def test_rows_and_columns_come_by_their_sums_and_none_is_lost() -> None:
    drawn = heat.draw({("a", "x"): 1, ("b", "y"): 5, ("b", "x"): 2}, Kind.NUMBER)
    assert drawn.columns == ["y", "x"] and not drawn.many
    assert [(line.label, [cell.text for cell in line.cells]) for line in drawn.lines] == [
        ("b", ["5", "2"]),
        ("a", ["0", "1"]),
    ]
    assert [cell.text for cell in drawn.totals] == ["5", "3", "8"]
    assert drawn.lines[0].cells[0].exact == "b to y: 5"


def test_the_smallest_of_many_relays_are_added_up() -> None:
    count = heat.MAX_SIDE + 10
    values = {(f"r{number}", "one"): number + 1 for number in range(count)}
    drawn = heat.draw(values, Kind.NUMBER)
    assert len(drawn.lines) == heat.MAX_SIDE
    assert drawn.lines[-1].label == heat.OTHERS
    assert drawn.lines[-1].total.text == str(sum(range(1, 12)))
    assert drawn.totals[-1].text == str(sum(range(1, count + 1)))
    wide = heat.draw({("one", f"r{number}"): 1 for number in range(heat.MANY + 1)}, Kind.NUMBER)
    assert wide.many


def test_a_curve_has_gaps_where_nothing_is_known() -> None:
    drawn = curves.draw([("a", [0, 10, None, None, 5])], ["from", "to"], Kind.NUMBER)
    (curve,) = drawn.curves
    assert curve.line.count("M") == 2, "two pieces, the second a dot"
    assert curve.line.startswith(f"M0.0 {curves.HEIGHT}.0L250.0 ")
    assert (curve.top, drawn.levels[-1], drawn.moments) == ("10", "0", ["from", "to"])


def test_what_is_drawn_is_bounded() -> None:
    lines = [(f"<{number}>", [float(number)] * 5000) for number in range(20)]
    drawn = curves.draw(lines, [], Kind.NUMBER)
    assert [curve.number for curve in drawn.curves] == list(range(1, curves.MAX_LINES + 1))
    assert all(curve.line.count("L") < curves.MAX_POINTS for curve in drawn.curves)
    text = render_to_string("relay_dashboard/curves.html", {"curves": drawn, "label": "x"})
    assert "&lt;3&gt;" in text and "style=" not in text


@pytest.mark.parametrize("lines", [[], [("a", [])], [("a", [None, None])]])
def test_nothing_to_draw(lines: list[tuple[str, list[float | None]]]) -> None:
    drawn = curves.draw(lines, ["x"], Kind.NUMBER)
    assert all(curve.line == "" and curve.top == "-" for curve in drawn.curves)
