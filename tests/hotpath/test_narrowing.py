"""mypyc trusts mypy's conclusions, so compiled modules must not repeat a check for None.

    if arrival.answer is None:
        self.admit(arrival)              # may set it
        if arrival.answer is None: ...   # TypeError in the compiled form

mypy warns only about the opposite check, whose branch it takes for unreachable. Sources check
a property (`arrival.open`) instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hotpath import compiled

ENDS = ast.Return | ast.Raise | ast.Continue | ast.Break
TRAP = """
def store(arrival):
    {}
"""


def _questions(condition: ast.expr) -> Iterator[str]:
    """Yield the attributes that a condition compares with None."""
    for node in ast.walk(condition):
        if not (isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute)):
            continue
        if ast.unparse(node).endswith((" is None", " is not None")):
            yield ast.unparse(node.left)


def _answered(condition: ast.expr) -> set[str]:
    """Return the attributes whose comparison has a known result if the condition holds."""
    parts = [condition]
    if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
        parts = condition.values
    return {name for part in parts if isinstance(part, ast.Compare) for name in _questions(part)}


def asked_again(statements: Sequence[ast.stmt], known: frozenset[str] = frozenset()) -> list[str]:
    """Return the attributes, with lines, that are checked although mypy knows the result."""
    found = []
    for each in statements:
        if isinstance(each, ast.If | ast.Assert):
            found += [f"{each.lineno}: {name}" for name in _questions(each.test) if name in known]
        if isinstance(each, ast.If):
            found += asked_again(each.body, known | _answered(each.test))
            otherwise = _answered(each.test) if isinstance(each.test, ast.Compare) else set()
            found += asked_again(each.orelse, known | otherwise)
            if isinstance(each.body[-1], ENDS):
                known |= otherwise
        elif isinstance(each, ast.Assert):
            known |= _answered(each.test)
        elif isinstance(each, ast.Assign):
            given = {ast.unparse(target) for target in each.targets}
            is_none = isinstance(each.value, ast.Constant) and each.value.value is None
            known = known | given if is_none else known - given
        else:
            for part in ("body", "orelse", "finalbody"):
                found += asked_again(getattr(each, part, ()))
    return found


@pytest.mark.parametrize(
    "lines",
    [
        ["if arrival.answer is None:", "    admit()", "    if arrival.answer is None: pass"],
        ["if arrival.answer is not None: return", "wait()", "if arrival.answer is None: pass"],
        ["arrival.answer = None", "admit()", "if full and arrival.answer is None: pass"],
    ],
)
def test_questions_that_are_asked_again_are_found(lines: list[str]) -> None:
    trap = ast.parse(TRAP.format("\n    ".join(lines)))
    assert asked_again(trap.body) == ["5: arrival.answer"]


@pytest.mark.parametrize("module", compiled.MODULES)
def test_nothing_is_asked_again(module: str) -> None:
    path = Path(compiled.ROOT, *module.split(".")).with_suffix(".py")
    assert asked_again(ast.parse(path.read_text()).body) == []
