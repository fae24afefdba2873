"""Paths that Spark and DuckDB do not interpret as patterns.

Both interpret the path of a file as a pattern, Spark as a URI as well, and Java cannot open a file
with characters beyond ASCII in the locale C. So a folder whose path has other characters than
letters, digits and `. _ - /` gets a symbolic link in a private temporary folder, and they use the
link. The name of the link is a hash of the folder, so a stream that continues later finds its files
under the same paths.
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
    """Check whether a path has only characters that every program takes literally."""
    return _PLAIN.fullmatch(str(path)) is not None


def plain(folder: Path) -> Path:
    """Return the folder, or a link to it whose path is plain.

    Raises:
        OSError: the link cannot be created.
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
    """Return the folder of the links, which only this user can enter."""
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
