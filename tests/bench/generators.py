"""Client side of the load generators: start them, call them, end them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.bench.layout import on_cores

STOP_TIMEOUT_S = 10.0


class LoadError(RuntimeError):
    """A load generator reported a failure."""


class GeneratorProcess:
    """One load generator process on one core."""

    def __init__(
        self,
        core: int | None,
        module: str = "tests.bench.load",
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            core: core of the process; None: any.
            module: Python module to run.
            command: command of another program that answers the same calls.
            environment: variables in addition to those of the bench.
        """
        cores = frozenset() if core is None else frozenset({core})
        command = command or [sys.executable, "-m", module]
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        options["env"] = {**os.environ, **(environment or {})}
        with on_cores(cores) if cores else contextlib.nullcontext():
            self._process = subprocess.Popen(command, **options)  # type: ignore[call-overload]

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self._process.pid)

    def begin(self, call: str, **args: Any) -> None:
        """Send a call; `finish` returns its answer."""
        self._process.stdin.write(json.dumps({"call": call, "args": args}) + "\n")
        self._process.stdin.flush()

    def finish(self) -> Any:
        """Wait for the answer to the oldest unanswered call."""
        line = self._process.stdout.readline()
        if not line:
            raise LoadError(f"a load generator ended with code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise LoadError(answer["error"])
        return answer["ok"]

    def call(self, call: str, **args: Any) -> Any:
        """Send a call and wait for its answer."""
        self.begin(call, **args)
        return self.finish()

    def close(self) -> None:
        """End the process, which breaks all its connections."""
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Generators:
    """Several load generators that do the same at the same time, each with its share."""

    def __init__(self, cores: Sequence[int | None]) -> None:
        self.processes = [GeneratorProcess(core) for core in cores]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            process.close()

    def all(self, call: str, **args: Any) -> list[Any]:
        """Call every generator with the same arguments; return the answers in order."""
        return self.each(call, [args] * len(self.processes))

    def each(self, call: str, args: Iterable[dict[str, Any]]) -> list[Any]:
        """Call every generator with its own arguments; return the answers in order."""
        self.begin(call, args)
        return self.finish()

    def begin(self, call: str, args: Iterable[dict[str, Any]]) -> None:
        """Send the calls of `each`; `finish` returns the answers."""
        for process, own in zip(self.processes, args, strict=True):
            process.begin(call, **own)

    def finish(self) -> list[Any]:
        """Wait for the answers to the calls of `begin`."""
        return [process.finish() for process in self.processes]

    def share(self, items: Sequence[Any]) -> list[list[Any]]:
        """Distribute items to the generators in turn."""
        count = len(self.processes)
        return [list(items[index::count]) for index in range(count)]
