"""Two recorders in one worker, each of which gets every event once."""

from __future__ import annotations

import inspect
from typing import Any

from relay.sessions.recorder import Recorder, Recorders

TOLD_BY_THEMSELVES = {"queued", "delivered"}
"""Methods that each recorder calls itself, in `committed` and `written`."""
ASKED = {"followed"}


def test_both_are_told_everything_once() -> None:
    told: list[tuple[str, str, tuple[Any, ...]]] = []

    class Noting(Recorder):
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattribute__(self, method: str) -> Any:
            if method in ("name", "__dict__", "follows", "told_trims"):
                return object.__getattribute__(self, method)
            return lambda *words: told.append((self.name, method, words))

    both = Recorders(Noting("one"), Noting("other"))
    methods = {
        name: len(inspect.signature(method).parameters) - 1
        for name, method in inspect.getmembers(Recorder, inspect.isfunction)
        if not name.startswith("_") and name not in TOLD_BY_THEMSELVES | ASKED
    }
    assert len(methods) > 10
    for name, count in methods.items():
        words = tuple(range(count))
        told.clear()
        getattr(both, name)(*words)
        assert told == [("one", name, words), ("other", name, words)]


def test_they_get_what_either_wants() -> None:
    class Wanting(Recorder):
        follows = True
        told_trims = 5

    for one, other in ((Wanting(), Recorder()), (Recorder(), Wanting())):
        both = Recorders(one, other)
        assert both.follows
        assert both.told_trims == Recorder.told_trims > Wanting.told_trims
