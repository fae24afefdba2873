"""Loading of users' modules: installed ones by their entry points, others by name.

An installed package names its modules in its `pyproject.toml`, and every gateway on the host loads
them:

    [project.entry-points."rmb.peer.modules"]
    calc = "my_package.calc:module"

`rmb-peer --module my_package.calc:module` adds a module that is importable but has no entry point.
Each reference is to a Module, or to a function without arguments that returns one.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Final

from peer.modules.api import Module

GROUP: Final = "rmb.peer.modules"
"""Entry-point group in which packages name their modules."""


class ModuleError(Exception):
    """A module cannot be used; the text names it and gives the reason."""


def load(names: Sequence[str], installed: Iterable[EntryPoint] | None = None) -> list[Module]:
    """Import the modules of all entry points, and those that are named.

    Args:
        names: references of the form `package.module:attribute`.
        installed: entry points; None: those of the environment.

    Raises:
        ModuleError: one cannot be imported or is not a Module, or two have the same prefix.
    """
    if installed is None:
        installed = _installed()
    references = [(f"entry point {point.name}", point.value) for point in installed]
    references += [(f"--module {name}", name) for name in names]
    found: dict[str, tuple[str, Module]] = {}
    seen: set[str] = set()
    for what, reference in references:
        if reference in seen:  # installed and named
            continue
        seen.add(reference)
        module = _load(what, reference)
        if module.prefix in found:
            other = found[module.prefix][0]
            raise ModuleError(f"{what}: {other} has the prefix {module.prefix!r} already")
        found[module.prefix] = (what, module)
    return [module for _, module in found.values()]


@functools.cache
def _installed() -> EntryPoints:
    """Return the entry points of the environment; cached, as the search takes about 20 ms."""
    return entry_points(group=GROUP)


def _load(what: str, reference: str) -> Module:
    package, colon, attribute = reference.partition(":")
    if not (package and colon and attribute):
        raise ModuleError(f"{what}: write it as package.module:attribute")
    try:
        found: object = importlib.import_module(package)
        for name in attribute.split("."):
            found = getattr(found, name)
        if callable(found) and not isinstance(found, Module):
            found = found()
    except Exception as error:  # the module's own code runs here
        raise ModuleError(f"{what}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Module):
        raise ModuleError(f"{what}: {reference} is a {type(found).__name__}, not a Module")
    return found
