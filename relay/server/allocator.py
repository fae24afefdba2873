"""The memory allocator of the bundled server: jemalloc, where this machine has it.

Valkey is made for jemalloc, but the bundled one is built without. The allocator of glibc hands out
the pieces that a crowd of sessions or a flood left free between what stays, each in a page of its
own: a message then costs the server up to twice as much, long after the crowd has come
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
"""It keeps as many pieces of up to 64 KiB at hand as a batch of large messages takes, and hands out
what was freed last, which is still in a cache. By itself it keeps twenty, of up to 32 KiB; others
it takes from where nobody wrote for long."""

_TRIAL_S: Final = 10.0


def server_environment(program: str) -> dict[str, str]:
    """What a Redis server is started with: our own environment, and jemalloc loaded first.

    Without jemalloc where there is none, or where `program` does not start with it: some builds
    want another size of pages than the machine has. Without `OPTIONS` where it is too old for them
    (before 5.3); what `MALLOC_CONF` says already counts more.
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
    return trial.returncode == 0 and not trial.stderr  # both say what they cannot do
