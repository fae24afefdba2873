"""Keys of sessions in addresses of pages: `/console/queues/7:laptop/`."""

from __future__ import annotations

import re
from typing import Final

_ESCAPED: Final = re.compile("~(2F|7E)")


class KeyConverter:
    """A session's key as one part of a path. Clients choose session ids: one may hold a slash."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)

    def to_url(self, value: str) -> str:
        return value.replace("~", "~7E").replace("/", "~2F")
