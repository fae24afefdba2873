"""Path parameters of pages: keys of sessions (`/console/queues/7:laptop/`), and twins."""

from __future__ import annotations

import re
from typing import Final

from proto.identity.bounds import MAX_TWIN
from relay.access.errors import NotFound

_ESCAPED: Final = re.compile("~(2F|7E)")


class KeyConverter:
    """A session's key as one path segment. Clients choose session ids, which may have slashes."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)

    def to_url(self, value: str) -> str:
        return value.replace("~", "~7E").replace("/", "~2F")


def check_twin(twin: int) -> None:
    """Check that a number can be the id of a twin.

    Raises:
        NotFound: no twin can have this id.
    """
    if not 0 < twin <= MAX_TWIN:
        raise NotFound(f"there can be no twin {twin}")
