"""Files that are replaced atomically: either complete, or still what they were before."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from relay.analytics.segments import sync_folder

PRIVATE = 0o600


@contextlib.contextmanager
def written(path: Path, *, new: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a draft that becomes the file when the block ends, and is deleted if the block fails.

    A path that is not a regular file, such as a pipe or a terminal, is written directly.

    Args:
        path: Path of the file; a symbolic link is followed.
        new: Whether the file must not exist yet.
        mode: Mode of a file that did not exist, before the umask is applied.

    Raises:
        FileExistsError: It must be new, but exists.
        OSError: It cannot be written.
    """
    if not new:
        path = path.resolve()
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
    elif path.exists() or path.is_symlink():
        raise FileExistsError(None, "File exists", str(path))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            if path.exists():
                os.fchmod(handle, stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(handle)  # otherwise a power loss may leave the name without its content
        if new:
            os.link(draft, path)  # never replaces another file
        else:
            draft.replace(path)
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def written_text(path: Path, *, new: bool = False, mode: int = 0o666) -> Iterator[TextIO]:
    """Do the same as `written`, for text whose line ends are kept."""
    with written(path, new=new, mode=mode) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()
