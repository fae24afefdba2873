"""Output of the bench: a table for people, JSON for programs, a history for comparisons."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import layout
from tests.bench.figures import Figure, Row
from tests.bench.targets import ROOT

HISTORY = ROOT / "docs" / "bench" / "history"
NAME_WIDTH = 46


def number(value: float) -> str:
    """Format a number with about three significant digits and grouped thousands."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.4f}"


def figure_line(figure: Figure) -> str:
    """Format one figure with its targets."""
    value = f"{number(figure.value)} {figure.unit}".rstrip()
    line = f"  {figure.name:<{NAME_WIDTH}} {value:>14}"
    if figure.must is None:
        return line
    sign = "<=" if figure.lower_is_better else ">="
    targets = f"must {sign} {number(figure.must)}"
    if figure.goal is not None:
        targets += f", goal {sign} {number(figure.goal)}"
    return f"{line}   {targets:<30} {figure.verdict}"


def row_text(row: Row) -> str:
    """Format one row as text."""
    lines = [f"{row.name}: {row.title}", *map(figure_line, row.figures)]
    return "\n".join([*lines, *(f"  note: {remark}" for remark in row.remarks), ""])


def summary(rows: list[Row]) -> str:
    """Format the figures that have targets, one line each."""
    lines = ["", f"{'row':<12} {'figure':<{NAME_WIDTH}} {'value':>14}   {'targets':<30} verdict"]
    for row in rows:
        for figure in row.figures:
            if figure.must is not None:
                lines.append(f"{row.name:<11}{figure_line(figure)}")
    return "\n".join(lines)


def machine_text() -> str:
    """Describe the machine and the versions of packages, in two lines."""
    facts = layout.machine()
    versions = facts.pop("versions")
    assert isinstance(versions, dict)
    pairs = [f"{name.replace('_', ' ')} {value}" for name, value in facts.items()]
    return "\n".join(["", ", ".join(pairs), ", ".join(f"{n} {v}" for n, v in versions.items())])


def document(rows: list[Row], options: dict[str, Any]) -> dict[str, Any]:
    """Return the whole run as plain values."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "options": options,
        "machine": layout.machine(),
        "rows": [row.as_json() for row in rows],
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a run to a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def history_path(content: dict[str, Any]) -> Path:
    """Return the file in which a run is kept, named by its time, so that names sort by it."""
    return HISTORY / f"{content['at'][:19].replace(':', '').replace('-', '')}Z.json"


def _commit() -> str:
    """Return the short hash of the measured commit, or an empty text outside a clone."""
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return asked.stdout.strip()
