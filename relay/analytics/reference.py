"""Generator of the reference of all tables: `python -m relay.analytics.reference`.

The docstring of a job's module defines its table. It is read from the source, so neither Spark nor
Java is needed. The docstring lists the columns as indented lines, `name  meaning`; further lines of
a meaning are indented as far as the first.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from relay.analytics.spark import catalogue
from relay.analytics.spark.catalogue import Job, Table

_JOBS: Final = Path(catalogue.__file__).parent / "jobs"

_HEAD: Final = """\
# Tables of the analytics

The tables that the jobs of `manage.py rmb_analytics` compute. All times are UTC. `period` is the
day or month that a row belongs to. A job always computes a whole period: if rows arrive late, it
computes the period again and replaces it. Counts and sums without rows are 0, percentiles without
values are null. A percentile is the value at the nearest rank, ceil(p * n), never a value between
two; all numbers are integers.

Every table is in Parquet files below `results/` in the analytics folder. Some tables are also in
the database, for pages, reports and REST.

`make docs` generates this page from the modules in `relay/analytics/spark/jobs`.
"""

_COLUMN: Final = re.compile(r"    (?P<name>\w+)  +(?P<meaning>\S.*)")
_CONSTANT: Final = re.compile(r"\b[A-Z][A-Z_]{2,}\b")
_SHORT_CHARS: Final = 60
"""Maximum length of the value of a constant in the reference."""


def columns(table: Table) -> dict[str, str]:
    """Return name and meaning of the columns that a table's docstring defines, in their order."""
    lists = [_list(paragraph) for paragraph in _paragraphs(_source(table))]
    return next((found for found in lists if "period" in found), {})


def render() -> str:
    """Return the reference in Markdown."""
    parts = [_HEAD]
    for job in catalogue.JOBS.values():
        parts.append(f"## {job.name}\n\n{job.about[0].upper()}{job.about[1:]}.{_margins(job)}\n")
        parts += ["\n\n".join(_table(table)) + "\n" for table in job.tables]
    return "\n".join(parts)


def _margins(job: Job) -> str:
    told = [
        f"{margin.total_seconds() / 3600:.0f} h {side}"
        for margin, side in ((job.reads_before, "before"), (job.reads_after, "after"))
        if margin
    ]
    return f" Also reads the events of {' and '.join(told)} the period." if told else ""


def _table(table: Table) -> Iterator[str]:
    tree = _source(table)
    yield f"### `{table.name}`"
    for paragraph in _paragraphs(tree):
        if found := _list(paragraph):
            head = "Column" if "period" in found else "Name"
            lines = [f"| {head} | Meaning |", "| --- | --- |"]
            lines += [
                f"| `{name}` | {text.replace('|', '&#124;')} |" for name, text in found.items()
            ]
            yield "\n".join(lines)
        else:
            yield paragraph
    if constants := list(_constants(tree)):
        yield "\n".join(constants)
    keys = ", ".join(f"`{key}`" for key in table.keys)
    yield f"In files{' and in the database' if table.in_database else ''}. Key columns: {keys}."


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


def _source(table: Table) -> ast.Module:
    return ast.parse((_JOBS / f"{table.name}.py").read_text())


def _paragraphs(tree: ast.Module) -> list[str]:
    return re.split(r"\n{2,}", ast.get_docstring(tree) or "")


def _list(paragraph: str) -> dict[str, str]:
    """Return names and meanings if a paragraph is an indented list of them; else an empty dict."""
    found: dict[str, str] = {}
    name = ""
    for line in paragraph.splitlines():
        if item := _COLUMN.fullmatch(line):
            name = item["name"]
            found[name] = item["meaning"]
        elif name and line.startswith("     "):
            found[name] += " " + line.strip()
        else:
            return {}
    return found


def _constants(tree: ast.Module) -> Iterator[str]:
    """Yield a list item with the value of each constant that the docstring names."""
    named = set(_CONSTANT.findall(ast.get_docstring(tree) or ""))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            value = ast.unparse(node.value)
            if node.target.id in named and len(value) <= _SHORT_CHARS:
                yield f"- {node.target.id} = `{value}`"


if __name__ == "__main__":
    sys.stdout.write(render())
