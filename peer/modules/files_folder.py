"""The folder of uploads on disk. Nothing outside of it is ever opened, written or deleted.

    <folder>/.incoming/lock          held as long as a peer uses the folder
    <folder>/.incoming/<key>.json    record of an upload
    <folder>/.incoming/<key>.part    its content so far, and behind it the number of whole chunks
    <folder>/<twin>/<name>           finished files of a twin

Every file is opened relative to the descriptor of its folder, by a name of one component and
without following symbolic links: whatever stands in a path, there is no way up or out. A finished
file gets its name in one step, so that a reader sees all of it or nothing.

Everything here blocks: call it from a thread.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from peer.errors import PeerError
from proto.files.records import Record, RecordError, encode_record, parse_record

INCOMING: Final = ".incoming"
MAX_RECORD_BYTES: Final = 64 * 1024
"""Larger ones are not ours."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOOTER: Final = struct.Struct("<Q")
_RECORD_NAME: Final = re.compile(r"([0-9a-f]{32})\.json")
_FILE_MODE: Final = 0o640
_FOLDER_MODE: Final = 0o750


class FolderError(PeerError):
    """The folder can't be used; the text says why."""


class Finished(NamedTuple):
    """The finished files of a twin."""

    files: int
    size_bytes: int


class UploadFolder:
    """The folder, locked for this process.

    Raises:
        FolderError: it is not there, not writable, or another peer uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._closing = contextlib.ExitStack()
        try:
            with self._closing as closing:
                self._root = self._own(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY))
                self._incoming = self._own(_folder(INCOMING, self._root))
                lock = os.open("lock", _FILE | os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self._incoming)
                fcntl.flock(self._own(lock), fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._closing = closing.pop_all()
        except BlockingIOError:
            raise FolderError(f"upload folder {path} is used by another peer") from None
        except OSError as error:
            raise FolderError(f"upload folder {path}: {error.strerror}") from None

    def close(self) -> None:
        """Unlock it."""
        self._closing.close()

    # Unfinished uploads.

    def records(self) -> Iterator[tuple[str, Record | None]]:
        """Every record with its key; None: it can't be read, and `load` says why."""
        for name in os.listdir(self._incoming):
            found = _RECORD_NAME.fullmatch(name)
            if found is None:
                continue
            try:
                yield found[1], self.load(found[1])
            except (OSError, FolderError, RecordError):
                yield found[1], None

    def load(self, key: str) -> Record:
        """Read a record.

        Raises:
            RecordError: it is damaged.
            FolderError: it is not a regular file.
        """
        with open(self._open(f"{key}.json", _FILE | os.O_RDONLY), "rb") as file:
            return parse_record(file.read(MAX_RECORD_BYTES))

    def save(self, key: str, record: Record) -> None:
        """Write a record in place of the one before."""
        name = f"{key}.json"
        flags = _FILE | os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        fd = os.open(f"{name}.new", flags, 0o600, dir_fd=self._incoming)
        try:
            _write(fd, encode_record(record), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(f"{name}.new", name, src_dir_fd=self._incoming, dst_dir_fd=self._incoming)

    def remove(self, key: str) -> None:
        """Delete an upload: its record last, so that a part is never left alone."""
        for name in (f"{key}.json.new", f"{key}.part", f"{key}.json"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._incoming)

    def remove_strays(self) -> None:
        """Delete parts without a record, and records that were not finished."""
        names = set(os.listdir(self._incoming))
        for name in names:
            stem, _, suffix = name.partition(".")
            if (suffix == "part" and f"{stem}.json" not in names) or suffix == "json.new":
                os.unlink(name, dir_fd=self._incoming)

    def written_at(self, key: str) -> float:
        """When something of an upload was written last, in unix seconds; 0.0: never."""
        try:
            return os.stat(f"{key}.part", dir_fd=self._incoming, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            return 0.0

    def open_part(self, key: str, size_bytes: int) -> int:
        """Open the content of an upload, made when it is not there; the caller closes."""
        flags = _FILE | os.O_RDWR | os.O_CREAT
        fd = self._open(f"{key}.part", flags)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise FolderError(f"{key}.part is not a regular file")
            if found.st_size < size_bytes:
                os.ftruncate(fd, 0)
                os.ftruncate(fd, size_bytes + _FOOTER.size)  # a footer of 0, and holes
        except BaseException:
            os.close(fd)
            raise
        return fd

    # Finished files.

    def place(self, key: str, twin: int, name: str, replace: bool) -> tuple[int, int, int]:
        """Give a finished part its name; done again after a crash it changes nothing.

        Returns:
            What tells the file from a later one of that name.

        Raises:
            FileExistsError: there is one of that name, and it is not to be replaced.
            FolderError: neither the part is there nor a file of that name.
        """
        part = f"{key}.part"
        folder = _folder(str(twin), self._root)
        try:
            mark = _mark(part, self._incoming)
            if mark is None:
                mark = _mark(name, folder)
                if mark is None:
                    raise FolderError(f"{name} was removed")
                return mark
            if replace:
                os.rename(part, name, src_dir_fd=self._incoming, dst_dir_fd=folder)
            else:
                self._link(part, name, folder)
            os.fsync(folder)
            os.fsync(self._incoming)
            return mark
        finally:
            os.close(folder)

    def find(self, twin: int, name: str) -> tuple[int, int, int] | None:
        """What tells the file of this name from others; None: there is none."""
        with contextlib.suppress(FileNotFoundError), self._of(twin) as folder:
            return _mark(name, folder)
        return None

    def finished(self, twin: int) -> Finished:
        """How many files a twin has, and their size."""
        files = size_bytes = 0
        with (
            contextlib.suppress(FileNotFoundError),
            self._of(twin) as folder,
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                files += 1
                with contextlib.suppress(FileNotFoundError):  # taken away meanwhile
                    size_bytes += entry.stat(follow_symlinks=False).st_size
        return Finished(files, size_bytes)

    def free_bytes(self) -> int:
        """Space left on the disk."""
        found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    def path_of(self, twin: int, name: str) -> Path:
        """The path of a finished file, for people and services."""
        return self.path / str(twin) / name

    def _open(self, name: str, flags: int) -> int:
        """Opens a file of an unfinished upload."""
        try:
            return os.open(name, flags, _FILE_MODE, dir_fd=self._incoming)
        except OSError as error:
            if error.errno == errno.ELOOP:  # a symbolic link is none of ours
                raise FolderError(f"{name} is not a regular file") from None
            raise

    def _link(self, part: str, name: str, folder: int) -> None:
        # A rename would replace what is there; a link can't.
        try:
            os.link(part, name, src_dir_fd=self._incoming, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            ours = os.stat(part, dir_fd=self._incoming, follow_symlinks=False)
            theirs = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not os.path.samestat(ours, theirs):
                raise
        os.unlink(part, dir_fd=self._incoming)

    @contextlib.contextmanager
    def _of(self, twin: int) -> Iterator[int]:
        """The folder of a twin, when it is there."""
        folder = os.open(str(twin), _FOLDER, dir_fd=self._root)
        try:
            yield folder
        finally:
            os.close(folder)

    def _own(self, fd: int) -> int:
        self._closing.callback(os.close, fd)
        return fd


def read_footer(fd: int, size_bytes: int) -> int | None:
    """How many chunks of a part are whole; None: it has no footer any more, it is complete."""
    data = os.pread(fd, _FOOTER.size, size_bytes)
    if not data:
        return None
    return int(_FOOTER.unpack(data)[0]) if len(data) == _FOOTER.size else 0


def write_footer(fd: int, size_bytes: int, chunks: int) -> None:
    """Take down how many chunks of a part are whole."""
    _write(fd, _FOOTER.pack(chunks), size_bytes)


def write_chunk(fd: int, data: bytes, offset: int) -> None:
    """Write a chunk of a part."""
    _write(fd, data, offset)


def seal(fd: int, size_bytes: int) -> None:
    """Cut the footer off a part that is complete, and have it on disk."""
    os.ftruncate(fd, size_bytes)
    os.fsync(fd)


def _folder(name: str, parent: int) -> int:
    """Opens a folder, made when it is not there; never through a symbolic link."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _mark(name: str, folder: int) -> tuple[int, int, int] | None:
    """What tells a file from others, whatever its name; None: it is not there."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
