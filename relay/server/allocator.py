"""The memory allocator of the bundled server: jemalloc, if this machine has it.

Valkey is designed for jemalloc, but the bundled one is built without. The allocator of glibc reuses
the fragments that a crowd of sessions or a flood left free between longer-lived memory, each in a
page of its own: a message then takes up to twice the CPU time, long after the crowd has come
(`docs/decisions/018-allocator.md`).
"""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from typing import Final

LIBRARY: Final = "jemalloc"

OPTIONS: Final = "lg_tcache_max:16,tcache_nslots_large:128"
"""Options of jemalloc: it caches as many pieces of up to 64 KiB as a batch of large messages takes,
and hands out the one freed last, which is still in the processor's cache. By default it caches
twenty, of up to 32 KiB, and takes others from memory that has long been unused."""

_TRIAL_S: Final = 10.0


def server_environment(program: str) -> dict[str, str]:
    """Return the environment of a Redis server: that of this process, with jemalloc preloaded.

    jemalloc is omitted if it is not installed, or if `program` does not start with it: some builds
    expect another page size than the machine has. `OPTIONS` are omitted if it is too old for them
    (before 5.3); values already in `MALLOC_CONF` take precedence.
    """
    environment = dict(os.environ)
    library = ctypes.util.find_library(LIBRARY) if sys.platform == "linux" else None
    if library is None:
        return environment
    loaded = environment.get("LD_PRELOAD")
    with_library = {**environment, "LD_PRELOAD": f"{library}:{loaded}" if loaded else library}
    said = environment.get("MALLOC_CONF")
    with_options = {**with_library, "MALLOC_CONF": f"{OPTIONS},{said}" if said else OPTIONS}
    for wanted in (with_options, with_library):
        if _starts(program, wanted):
            return wanted
    return environment


def _starts(program: str, environment: dict[str, str]) -> bool:
    try:
        trial = subprocess.run(
            [program, "--version"], env=environment, capture_output=True, timeout=_TRIAL_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return trial.returncode == 0 and not trial.stderr  # loader and jemalloc report problems there
