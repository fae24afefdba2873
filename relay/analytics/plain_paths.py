"""Paths that Spark and DuckDB take as they are.

Both take the path of a file for a pattern, Spark for a URI as well, and Java cannot name a file
beyond ASCII in the locale C. So a folder whose path has anything but letters, digits and `. _ - /`
gets a symbolic link in a private temporary folder, and they are given that. The name of the link
tells the folder, so a stream that goes on later finds its files under the same paths.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9._/-]+")
_TEMPORARY: Final = ("/tmp", "/var/tmp")


def is_plain(path: Path) -> bool:
    """Whether a path is nothing but a path to everybody."""
    return _PLAIN.fullmatch(str(path)) is not None


def plain(folder: Path) -> Path:
    """Return the folder, or a link to it whose path is plain.

    Raises:
        OSError: the link cannot be made.
    """
    folder = folder.absolute()
    if is_plain(folder):
        return folder
    link = _links() / hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    if not link.is_symlink() or os.readlink(link) != str(folder):
        draft = link.with_name(f"{link.name}-{secrets.token_hex(4)}")
        draft.symlink_to(folder, target_is_directory=True)
        draft.replace(link)
    return link


def _links() -> Path:
    """The folder of the links, which nobody else can have made or can write to."""
    choices = map(Path, (tempfile.gettempdir(), *_TEMPORARY))
    base = next(each for each in choices if is_plain(each))
    folder = base / f"rmb-analytics-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not private or found.st_uid != os.getuid():
        raise PermissionError(
            0, "must be a folder only this user can enter; remove it", str(folder)
        )
    return folder
