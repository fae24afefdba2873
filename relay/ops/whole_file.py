"""Files that somebody names: whole when they are there, and until then what was there before."""

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
    """Open a draft that becomes the file when the block ends, and is gone if the block fails.

    What is no file, such as a pipe or a terminal, is written as it is.

    Args:
        path: of the file; where it is a link, of what that leads to.
        new: whether it must not be there yet.
        mode: of a file that was not there, less the umask.

    Raises:
        FileExistsError: it is to be new, and is there.
        OSError: it cannot be written.
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
            os.fsync(handle)  # or the name may outlive a power loss, and its content not
        if new:
            os.link(draft, path)  # never over another
        else:
            draft.replace(path)
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def written_text(path: Path, *, new: bool = False, mode: int = 0o666) -> Iterator[TextIO]:
    """As `written`, for text whose lines end as they are given."""
    with written(path, new=new, mode=mode) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()
