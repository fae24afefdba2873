"""Figures of a row: their values, their targets, and whether these are met."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured value, with the bounds that it must and should keep.

    Attributes:
        name: description that is printed.
        value: the figure.
        unit: unit printed after the value.
        must: bound that has to be kept, or None for a figure without a target.
        goal: bound that is aimed at, or None.
        lower_is_better: whether the bounds are upper bounds.
    """

    name: str
    value: float
    unit: str = ""
    must: float | None = None
    goal: float | None = None
    lower_is_better: bool = False

    @property
    def verdict(self) -> str:
        """`goal`, `met`, `MISSED`, or nothing for a figure without a target."""
        if self.must is None:
            return ""
        if self.goal is not None and self._keeps(self.goal):
            return "goal"
        return "met" if self._keeps(self.must) else "MISSED"

    def _keeps(self, bound: float) -> bool:
        return self.value <= bound if self.lower_is_better else self.value >= bound

    def as_json(self) -> dict[str, Any]:
        """Return the figure as plain values."""
        bound = {"must": self.must, "goal": self.goal, "lower_is_better": self.lower_is_better}
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            **(bound if self.must is not None else {}),
            "verdict": self.verdict,
        }


@dataclass
class Row:
    """Results of one row of the bench."""

    name: str
    title: str
    figures: list[Figure]
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def missed(self) -> bool:
        """Whether a figure misses the bound that it must keep."""
        return any(figure.verdict == "MISSED" for figure in self.figures)

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {
            "row": self.name,
            "title": self.title,
            "figures": [figure.as_json() for figure in self.figures],
            "remarks": self.remarks,
            "samples": self.samples,
        }
