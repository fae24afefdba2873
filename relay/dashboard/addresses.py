"""What addresses of pages name: sessions by their key (`/console/queues/7:laptop/`), and twins."""

from __future__ import annotations

import re
from typing import Final

from proto.identity.bounds import MAX_TWIN
from relay.access.errors import NotFound

_ESCAPED: Final = re.compile("~(2F|7E)")


class KeyConverter:
    """A session's key as one part of a path. Clients choose session ids: one may hold a slash."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)

    def to_url(self, value: str) -> str:
        return value.replace("~", "~7E").replace("/", "~2F")


def check_twin(twin: int) -> None:
    """Go on only with a number that a twin can have.

    Raises:
        NotFound: none can.
    """
    if not 0 < twin <= MAX_TWIN:
        raise NotFound(f"there can be no twin {twin}")
