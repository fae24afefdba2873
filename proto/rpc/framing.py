"""A sequence of JSON objects, received in chunks of any size (sheet section 12, framing).

Nothing but optional white space separates the objects. The reader scans each object once, for its
strings and brackets only, and parses it when it is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Never

from proto.rpc.errors import ErrorCode, RpcMessageError

MAX_MESSAGE_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64

_MARKS: Final = re.compile(rb'["{}\[\]]')
_STRING_END: Final = re.compile(rb'["\\]')
_BLANK: Final = b" \t\r\n"


def _no_number(name: str) -> Never:
    raise ValueError(f"{name} is not valid JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number)  # the default accepts NaN


class JsonReader:
    """Splits bytes into JSON objects."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES, max_depth: int = MAX_DEPTH) -> None:
        """Create a reader.

        Args:
            max_bytes: maximum size of one object.
            max_depth: maximum nesting of brackets.
        """
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._buffer = bytearray()
        self._at = 0  # position up to which the buffer was scanned
        self._depth = 0
        self._in_string = False

    @property
    def is_within(self) -> bool:
        """Whether an object has begun but is not complete."""
        return bool(self._buffer)

    def receive(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Add a chunk, and yield the objects that it completes.

        Raises:
            RpcMessageError: the bytes are not JSON, not an object, too long or nested too deeply.
        """
        whole = self._whole(data)
        if whole is not None:
            yield whole
            return
        self._buffer += data
        while (value := self._next()) is not None:
            yield value
        if len(self._buffer) > self._max_bytes:
            raise RpcMessageError(
                ErrorCode.MESSAGE_TOO_LONG, f"a message is longer than {self._max_bytes} bytes"
            )

    def rest(self) -> bytes:
        """Remove and return the unread bytes: raw calls continue with bytes."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._at = 0
        return rest

    def next_of(self, data: bytes) -> dict[str, Any] | None:
        """Add a chunk, and return the first object if it is complete; `rest` returns what follows.

        Raises:
            RpcMessageError: as for `receive`.
        """
        value = self._whole(data)
        if value is not None:
            return value
        self._buffer += data
        value = self._next()
        if value is None and len(self._buffer) > self._max_bytes:
            raise RpcMessageError(
                ErrorCode.MESSAGE_TOO_LONG, f"a message is longer than {self._max_bytes} bytes"
            )
        return value

    def _whole(self, data: bytes) -> dict[str, Any] | None:
        """Return the object if a chunk is exactly one, which is the common case; else None."""
        if self._buffer or data[:1] != b"{" or len(data) > self._max_bytes:
            return None
        if data.count(b"{") + data.count(b"[") > self._max_depth:
            return None  # it may be too deep
        try:
            value: dict[str, Any] = _DECODER.decode(data.decode())
        except (ValueError, RecursionError):
            return None
        return value

    def _next(self) -> dict[str, Any] | None:
        buffer = self._buffer
        if not self._at:
            blank = len(buffer) - len(buffer.lstrip(_BLANK))
            if blank:
                del buffer[:blank]
            if not buffer:
                return None
            if buffer[0] != ord("{"):
                raise RpcMessageError(ErrorCode.PARSE, "a message is not a JSON object")
        end = self._end_of_value()
        if end is None:
            return None
        if end > self._max_bytes:
            raise RpcMessageError(
                ErrorCode.MESSAGE_TOO_LONG, f"a message is longer than {self._max_bytes} bytes"
            )
        text = bytes(buffer[:end])
        del buffer[:end]
        self._at = 0
        try:
            value = _DECODER.decode(text.decode())
        except (ValueError, RecursionError):
            raise RpcMessageError(ErrorCode.PARSE, "a message is not JSON") from None
        assert isinstance(value, dict)
        return value

    def _end_of_value(self) -> int | None:
        """Continue the scan; return the position after the object, or None if it is incomplete."""
        buffer = self._buffer
        while True:
            if self._in_string:
                mark = _STRING_END.search(buffer, self._at)
                if mark is None:
                    self._at = len(buffer)
                    return None
                if mark[0] == b"\\":
                    if mark.end() >= len(buffer):
                        self._at = mark.start()
                        return None
                    self._at = mark.end() + 1
                else:
                    self._at = mark.end()
                    self._in_string = False
                continue
            mark = _MARKS.search(buffer, self._at)
            if mark is None:
                self._at = len(buffer)
                return None
            self._at = mark.end()
            if mark[0] == b'"':
                self._in_string = True
            elif mark[0] in b"{[":
                self._depth += 1
                if self._depth > self._max_depth:
                    raise RpcMessageError(
                        ErrorCode.PARSE, f"a message is nested deeper than {self._max_depth}"
                    )
            else:
                self._depth -= 1
                if not self._depth:
                    return self._at
