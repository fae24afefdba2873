"""The folder of uploads on disk. Nothing outside of it is ever opened, written or deleted.

    <folder>/.incoming/lock          held while a peer uses the folder
    <folder>/.incoming/<key>.json    record of an upload
    <folder>/.incoming/<key>.part    its content so far, followed by the number of complete chunks
    <folder>/<twin>/<name>           finished files of a twin

Every file is opened relative to the descriptor of its folder, by a name of one component and
without following symbolic links: no name can lead out of the folder. A finished file gets its name
in one step, so that a reader sees all of it or nothing.

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
"""Maximum size of a record; larger files are not records."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOOTER: Final = struct.Struct("<Q")
_RECORD_NAME: Final = re.compile(r"([0-9a-f]{32})\.json")
_FILE_MODE: Final = 0o640
_FOLDER_MODE: Final = 0o750


class FolderError(PeerError):
    """The folder cannot be used; the text gives the reason."""


class Finished(NamedTuple):
    """Number and total size of a twin's finished files."""

    files: int
    size_bytes: int


class UploadFolder:
    """The folder, locked for this process.

    Raises:
        FolderError: the folder does not exist, is not writable, or is used by another peer.
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
        """Unlock the folder."""
        self._closing.close()

    # Unfinished uploads.

    def records(self) -> Iterator[tuple[str, Record | None]]:
        """Yield every record with its key; None for an unreadable one, for which `load` raises."""
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
            RecordError: the record is damaged.
            FolderError: the record is not a regular file.
        """
        with open(self._open(f"{key}.json", _FILE | os.O_RDONLY), "rb") as file:
            return parse_record(file.read(MAX_RECORD_BYTES))

    def save(self, key: str, record: Record) -> None:
        """Write a record, replacing the former one."""
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
        """Delete an upload; its record is deleted last, so that no part is left without one."""
        for name in (f"{key}.json.new", f"{key}.part", f"{key}.json"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._incoming)

    def remove_strays(self) -> None:
        """Delete parts without a record, and records that were not written completely."""
        names = set(os.listdir(self._incoming))
        for name in names:
            stem, _, suffix = name.partition(".")
            if (suffix == "part" and f"{stem}.json" not in names) or suffix == "json.new":
                os.unlink(name, dir_fd=self._incoming)

    def written_at(self, key: str) -> float:
        """Return the Unix time of the last write to an upload's part; 0.0 if it has no part."""
        try:
            return os.stat(f"{key}.part", dir_fd=self._incoming, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            return 0.0

    def open_part(self, key: str, size_bytes: int) -> int:
        """Open the part of an upload, creating it if needed; the caller closes it."""
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
        """Give a finished part its name; repeating this after a crash changes nothing.

        Returns:
            Mark that distinguishes the file from a later one with the same name.

        Raises:
            FileExistsError: a file has this name, and is not to be replaced.
            FolderError: neither the part nor a file with this name exists.
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
        """Return the mark that distinguishes a file from others; None if no file has this name."""
        with contextlib.suppress(FileNotFoundError), self._of(twin) as folder:
            return _mark(name, folder)
        return None

    def finished(self, twin: int) -> Finished:
        """Return the number and the total size of a twin's files."""
        files = size_bytes = 0
        with (
            contextlib.suppress(FileNotFoundError),
            self._of(twin) as folder,
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                files += 1
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    size_bytes += entry.stat(follow_symlinks=False).st_size
        return Finished(files, size_bytes)

    def free_bytes(self) -> int:
        """Return the free space on the disk, in bytes."""
        found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    def path_of(self, twin: int, name: str) -> Path:
        """Return the path of a finished file, for users and services."""
        return self.path / str(twin) / name

    def _open(self, name: str, flags: int) -> int:
        """Open a file of an unfinished upload."""
        try:
            return os.open(name, flags, _FILE_MODE, dir_fd=self._incoming)
        except OSError as error:
            if error.errno == errno.ELOOP:  # a symbolic link, which the peer never creates
                raise FolderError(f"{name} is not a regular file") from None
            raise

    def _link(self, part: str, name: str, folder: int) -> None:
        # A rename would replace an existing file; a link cannot.
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
        """Open the folder of a twin for the block, if it exists."""
        folder = os.open(str(twin), _FOLDER, dir_fd=self._root)
        try:
            yield folder
        finally:
            os.close(folder)

    def _own(self, fd: int) -> int:
        self._closing.callback(os.close, fd)
        return fd


def read_footer(fd: int, size_bytes: int) -> int | None:
    """Return the number of complete chunks; None if the part is complete and has no footer."""
    data = os.pread(fd, _FOOTER.size, size_bytes)
    if not data:
        return None
    return int(_FOOTER.unpack(data)[0]) if len(data) == _FOOTER.size else 0


def write_footer(fd: int, size_bytes: int, chunks: int) -> None:
    """Record the number of complete chunks of a part."""
    _write(fd, _FOOTER.pack(chunks), size_bytes)


def write_chunk(fd: int, data: bytes, offset: int) -> None:
    """Write a chunk of a part at an offset."""
    _write(fd, data, offset)


def seal(fd: int, size_bytes: int) -> None:
    """Cut the footer off a complete part, and flush the part to disk."""
    os.ftruncate(fd, size_bytes)
    os.fsync(fd)


def _folder(name: str, parent: int) -> int:
    """Open a folder, creating it if needed; never follow a symbolic link."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _mark(name: str, folder: int) -> tuple[int, int, int] | None:
    """Return a mark that distinguishes a file from others, whatever its name; None if missing."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
