"""Which modules have a compiled form, where its build is, and whether it is in use.

    make compile    ->  hotpath/_compiled/manifest.json, hotpath/_compiled/build-*/
    import hotpath  ->  enable(): imports of `MODULES` load the build if it matches the sources

The Python sources remain the reference. They are used if there is no build, if it is out of date,
or if loading it fails. Either all of the modules are compiled or none, as compiled modules depend
on the memory layout of each other's objects. `hotpath.compiling` creates the build; this module
needs only the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from types import ModuleType
from typing import Any, Final

MODULES: Final = (
    *("peer.gateway.backlog", "peer.gateway.batch", "peer.gateway.bodies"),
    *("peer.gateway.commits", "peer.gateway.incoming", "peer.gateway.outgoing"),
    *("peer.gateway.queue_writes", "peer.gateway.queues", "peer.gateway.seals", "peer.inbox"),
    *("peer.mux.session", "peer.mux.stream", "peer.randomness", "peer.twins"),
    *("peer.unconfirmed",),
    *("proto.federation.batch", "proto.federation.delivery", "proto.federation.inbound"),
    *("proto.identity.signing", "proto.limits.shares", "proto.limits.window"),
    *("proto.mux.connection", "proto.mux.frames", "proto.mux.stream", "proto.mux.varint"),
    *("proto.rmb.address", "proto.rmb.blocks", "proto.rmb.challenge", "proto.rmb.e2e"),
    *("proto.rmb.fields", "proto.rmb.inbound", "proto.rmb.opening", "proto.rmb.outline"),
    *("proto.rmb.repeats", "proto.rmb.routing", "proto.rmb.sealing", "proto.rmb.stamp"),
    *("proto.rmb.tags", "proto.rmb.writing"),
    *("proto.rpc.call", "proto.rpc.caller", "proto.rpc.framing", "proto.rpc.handler"),
    *("proto.rpc.messages",),
    *("proto.sbd.machine", "proto.sbd.rate"),
    *("proto.websocket.frames",),
    *("redispipe.link", "redispipe.resp"),
    *("relay.federation.accounts", "relay.federation.arrival", "relay.federation.counters"),
    *("relay.federation.destination", "relay.federation.http_connection"),
    *("relay.federation.inbound_admission", "relay.federation.inbound_intake"),
    *("relay.federation.inbound_memory", "relay.federation.lane", "relay.federation.outbox"),
    *("relay.federation.settling", "relay.federation.shard", "relay.federation.window"),
    *("relay.mux.wire",),
    *("relay.queues.batch", "relay.queues.charging", "relay.queues.commit"),
    *("relay.queues.destination", "relay.queues.entries", "relay.queues.held", "relay.queues.keys"),
    *("relay.sbd.connection", "relay.sbd.switch"),
    *("relay.server.acknowledgement", "relay.server.frame_protocol"),
    *("relay.sessions.counters", "relay.sessions.meters", "relay.sessions.pages"),
    *("relay.sessions.parked", "relay.sessions.room"),
    *("relay.sessions.router", "relay.sessions.sender"),
    *("relay.sessions.session", "relay.sessions.worker"),
)
"""Modules that a message, packet, stream or call passes through."""

GROUP: Final = "rmb_hot"
LIBRARY: Final = f"{GROUP}__mypyc"
"""Extension module with the code of all modules; their own extension modules only refer to it."""

SWITCH: Final = "RMB_COMPILED"
FOLDER_VARIABLE: Final = "RMB_COMPILED_DIR"
MANIFEST: Final = "manifest.json"
SUFFIX: Final = EXTENSION_SUFFIXES[0]
"""File suffix of extension modules, which includes the version of Python and the platform."""

ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

NOT_BUILT: Final = "not built; run make compile"
SWITCHED_OFF: Final = f"switched off by {SWITCH}=0"
TESTED: Final = f"pytest tests the sources unless {SWITCH}=1"
CHANGED: Final = "built from other sources; run make compile"

_reason = "not enabled"


class _Finder:
    """Import finder that finds the compiled modules in their build."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the extension module of a compiled module; None for all others."""
        file = self._files.get(name)
        if file is None:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
        spec.has_location = True
        return spec


def enable() -> None:
    """Load the compiled modules from now on, if there is a build that matches."""
    global _reason
    try:
        _reason = _enable()
    except Exception as error:  # the sources work without a build
        _reason = f"{type(error).__name__}: {error}"


def in_use() -> bool:
    """Return whether this process runs the compiled form."""
    return not _reason


def state() -> str:
    """Describe the form that this process runs, and the reason if it is not the compiled one."""
    return f"pure Python: {_reason}" if _reason else "compiled"


def folder() -> str:
    """Return the folder of the builds."""
    return os.environ.get(FOLDER_VARIABLE) or os.path.join(ROOT, "hotpath", "_compiled")


def misfit(manifest: Mapping[str, Any]) -> str:
    """Return why a build cannot be used here; empty if it can."""
    if manifest["suffix"] != SUFFIX:
        return f"built for Python {manifest['python']}; run make compile"
    if manifest["modules"] != list(MODULES):
        return CHANGED
    try:
        same = digest(manifest["sources"]) == manifest["digest"]
    except OSError:
        same = False
    return "" if same else CHANGED


def digest(sources: Iterable[str]) -> str:
    """Return a digest of the contents of source files, given by their paths from the root.

    Raises:
        OSError: A file cannot be read.
    """
    found = hashlib.sha256()
    for name in sources:
        with open(os.path.join(ROOT, name), "rb", buffering=0) as file:
            found.update(hashlib.sha256(file.read()).digest())
    return found.hexdigest()


def read_manifest() -> dict[str, Any] | None:
    """Return the manifest of the current build; None if there is no build."""
    try:
        with open(os.path.join(folder(), MANIFEST), "rb") as file:
            found: dict[str, Any] = json.loads(file.read())
    except FileNotFoundError:
        return None
    return found


def _enable() -> str:
    """Return why the compiled form is not in use; empty if it is."""
    # pytest loads the settings before any file of this project could set the switch.
    if (switch := os.environ.get(SWITCH)) == "0":
        return SWITCHED_OFF
    if switch is None and "PYTEST_VERSION" in os.environ:
        return TESTED
    if (manifest := read_manifest()) is None:
        return NOT_BUILT
    if reason := misfit(manifest):
        return reason
    if early := next((name for name in MODULES if name in sys.modules), None):
        return f"{early} was imported before"
    build = os.path.join(folder(), manifest["build"])
    files = {name: os.path.join(build, *name.split(".")) + SUFFIX for name in (*MODULES, LIBRARY)}
    if missing := next((file for file in files.values() if not os.path.exists(file)), None):
        return f"{missing} is missing; run make compile"
    finder = _Finder(files)
    sys.meta_path.insert(0, finder)
    try:
        __import__(LIBRARY)  # keeps the code loaded even if the build is replaced meanwhile
    except BaseException:
        sys.meta_path.remove(finder)
        raise
    return ""
