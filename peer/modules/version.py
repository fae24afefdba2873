"""The module `rmb`: `rmb.version` returns the version of this peer, a JSON string.

Other commands of the prefix are not answered, as by rmb-peer 1.5.
"""

from __future__ import annotations

import functools
import json
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from peer.modules.api import JSON_SCHEMA, NO_ANSWER, Answer, Module, Request, Response

PACKAGE: Final = "rmb-relay-platform"


@functools.cache
def package_version() -> str:
    """Return the version of the installed package; "unknown" for sources that are not installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


def version_module() -> Module:
    """Return a new module `rmb`."""
    module = Module("rmb", unknown=_unanswered)
    payload = json.dumps(package_version()).encode()

    @module.command("version")
    async def answer(request: Request) -> Answer:
        return Response(payload, JSON_SCHEMA)

    return module


async def _unanswered(request: Request) -> Answer:
    return NO_ANSWER
