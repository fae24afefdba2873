"""All declared resources, by the modules that declare them: each has a tuple `RESOURCES`.

REST, the console's addresses and the reference are made of these.
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
        DeclarationError: two have one name.
    """
    found: dict[str, Resource] = {}
    for module in MODULES:
        for resource in import_module(module).RESOURCES:
            if resource.name in found:
                raise DeclarationError(f"resource {resource.name}: is declared twice")
            found[resource.name] = resource
    return tuple(found.values())
