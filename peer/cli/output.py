"""Output of `rmb`: tables and progress bars for people, one JSON value for programs.

Results go to standard output, progress and errors to standard error, so that `rmb call ... | jq`
gets results only. Bars are drawn on terminals only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

BAR_CHARACTERS: Final = 30
REDRAW_S: Final = 0.1

CLEAR: Final = "\r\x1b[K"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def show(fields: Mapping[str, Any], as_json: bool) -> None:
    """Print named values, one per line, or as one JSON object."""
    if as_json:
        print(json.dumps(fields))
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {printable(_text(value))}")


def show_payload(payload: bytes) -> None:
    """Print the answer of a twin: JSON indented, text unchanged, a hint for anything else.

    If the output is not a terminal, the answer is written unchanged.
    """
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(payload)
        sys.stdout.buffer.flush()
        return
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        print(f"{len(payload)} bytes of binary data; redirect the output to a file")
        return
    with contextlib.suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    print(printable(text))


def printable(text: str) -> str:
    """Replace characters with which a text from another twin could control this terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)


def payload_fields(payload: bytes) -> dict[str, Any]:
    """Return the answer of a twin, for programs: as `json`, else `text`, else `base64`."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(payload)
        # It is printed inside other objects, and NaN is not JSON.
        json.dumps([[[[found]]]], allow_nan=False)
        return {"json": found}
    with contextlib.suppress(UnicodeDecodeError):
        return {"text": payload.decode()}
    return {"base64": base64.b64encode(payload).decode()}


def size(count: float) -> str:
    """Format a number of bytes for people."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


class Progress:
    """A line on the terminal that is redrawn repeatedly; elsewhere only `say` writes.

    Use it as a context manager: it clears the line at its end.
    """

    def __init__(self, as_json: bool = False) -> None:
        self._shown = sys.stderr.isatty() and not as_json
        self._drawn_at = float("-inf")
        self._began = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def waiting(self, what: str) -> None:
        """Draw what is waited for, and for how long."""
        self._draw(f"{what} … {time.monotonic() - self._began:.0f} s")

    @contextlib.asynccontextmanager
    async def keep_waiting(self, what: str) -> AsyncIterator[None]:
        """Redraw what is waited for until the context ends."""

        async def redraw() -> None:
            while True:
                self.waiting(what)
                await asyncio.sleep(REDRAW_S)

        task = asyncio.create_task(redraw())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def part(self, done: int, total: int, what: str = "") -> None:
        """Draw the share of bytes that is done, and the speed."""
        share = done / total if total else 1.0
        filled = int(share * BAR_CHARACTERS)
        bar = "█" * filled + "░" * (BAR_CHARACTERS - filled)
        speed = done / max(time.monotonic() - self._began, 1e-3)
        self._draw(f"{what} {bar} {share:4.0%}  {size(done)} of {size(total)}, {size(speed)}/s")

    def say(self, text: str) -> None:
        """Print a permanent line, on a terminal or not."""
        clear = CLEAR if self._shown else ""
        print(f"{clear}rmb: {printable(text)}", file=sys.stderr, flush=True)

    def _draw(self, line: str) -> None:
        now = time.monotonic()
        if self._shown and now >= self._drawn_at + REDRAW_S:
            self._drawn_at = now
            sys.stderr.write(CLEAR + line)
            sys.stderr.flush()


def _text(value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)
