"""Registry of all declared resources, by the modules that declare them in a tuple `RESOURCES`.

The REST operations, the URLs of the console and the reference are built from it.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Final

from relay.resources.declaration import Resource
from relay.resources.fields import DeclarationError

MODULES: Final[tuple[str, ...]] = ("relay.sessions.resources", "relay.lattice.resources")


@functools.cache
def resources() -> tuple[Resource, ...]:
    """Return all resources.

    Raises:
        DeclarationError: two resources have the same name.
    """
    found: dict[str, Resource] = {}
    for module in MODULES:
        for resource in import_module(module).RESOURCES:
            if resource.name in found:
                raise DeclarationError(f"resource {resource.name}: is declared twice")
            found[resource.name] = resource
    return tuple(found.values())
