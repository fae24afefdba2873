"""Packaging of `relay.analytics.spark` as a zip file for the executors of a cluster.

Executors get nothing else of the project; the package imports neither Django nor other packages of
the project.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Final

import relay.analytics.spark

_PACKAGE: Final = Path(relay.analytics.spark.__file__).parent
_ROOT: Final = _PACKAGE.parent.parent.parent
_PARENTS: Final = ("relay/__init__.py", "relay/analytics/__init__.py")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def package(folder: Path) -> Path:
    """Write the zip file into `folder` unless it exists; its name is a hash of its contents."""
    files = {name: b"" for name in _PARENTS}
    for path in sorted(_PACKAGE.rglob("*.py")):
        files[path.relative_to(_ROOT).as_posix()] = path.read_bytes()
    told = hashlib.blake2b(digest_size=8)
    for name, content in files.items():
        told.update(f"{name} {len(content)}\n".encode() + content)
    target = folder / f"relay-analytics-spark-{told.hexdigest()}.zip"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"_tmp-{target.name}-{os.getpid()}"
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    draft.replace(target)
    return target
