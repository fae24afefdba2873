"""File in which a chain survives a restart: one line of JSON for each block.

The first line is the genesis block, and every other block comes after its parent. The best chain is
the one that ends with the last line. An unfinished line, left by a process that was killed while
writing, is cut off when the file is read. The file is locked, so that only one process uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from pathlib import Path
from typing import Any, BinaryIO, Final

from chain.devchain.errors import ChainFullError, JournalError
from chain.devchain.ledger import Block, Ledger
from proto.chain import headers
from proto.chain.bounds import MAX_EXTRINSIC_BYTES
from proto.chain.errors import ChainFormatError
from proto.chain.headers import from_hex, to_hex

_FORMAT: Final = 1


class FileJournal:
    """Journal that appends blocks to a file."""

    def __init__(self, path: Path) -> None:
        """Open the file; create it if it does not exist.

        Raises:
            JournalError: it cannot be opened, or another process has it open.
        """
        self._path = path
        try:
            self._file: BinaryIO = path.open("a+b")
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise JournalError(f"{path}: another node has it open") from None

    def load(self) -> Ledger | None:
        """Return the chain in the file, or None if it is empty.

        Raises:
            JournalError: the file is not a chain; the message names the line.
        """
        self._file.seek(0)
        ledger: Ledger | None = None
        good_bytes = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
            where = f"{self._path}, line {number}"
            block = _read(line, where)
            try:
                if ledger is None:
                    ledger = Ledger(block)
                else:
                    ledger.append(block)
            except KeyError:
                raise JournalError(f"{where}: its parent is not above it") from None
            except ChainFullError as error:
                raise JournalError(f"{where}: {error}") from None
            good_bytes += len(line)
        self._file.truncate(good_bytes)
        return ledger

    def append(self, block: Block) -> None:
        """Append a block.

        Raises:
            JournalError: the disk is full or fails.
        """
        changes = {
            key.hex(): None if value is None else value.hex()
            for key, value in block.changes.items()
        }
        line = {
            "format": _FORMAT,
            "header": block.header.to_json(),
            "extrinsics": [to_hex(each) for each in block.extrinsics],
            "changes": changes,
        }
        try:
            self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None

    def flush(self) -> None:
        """Write the appended blocks, which from then on survive the process.

        Raises:
            JournalError: the disk is full or fails.
        """
        try:
            self._file.flush()
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None

    def close(self) -> None:
        """Close the file; blocks that could not be written before are lost."""
        with contextlib.suppress(OSError):
            self._file.close()


def _read(line: bytes, where: str) -> Block:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise JournalError(f"{where}: not JSON") from None
    if not isinstance(value, dict) or value.get("format") != _FORMAT:
        raise JournalError(f"{where}: not a block of format {_FORMAT}")
    try:
        header = headers.from_json(value.get("header"))
        extrinsics = tuple(
            from_hex("extrinsics", each, MAX_EXTRINSIC_BYTES + 4)
            for each in _typed(value, "extrinsics", list)
        )
        changes = {
            bytes.fromhex(key): None if changed is None else bytes.fromhex(changed)
            for key, changed in _typed(value, "changes", dict).items()
        }
    except (ChainFormatError, TypeError, ValueError) as error:
        raise JournalError(f"{where}: {error}") from None
    return Block(header, header.hash(), extrinsics, changes)


def _typed(value: dict[str, Any], name: str, kind: type) -> Any:
    found = value.get(name)
    if not isinstance(found, kind):
        raise TypeError(f"{name} must be a JSON {kind.__name__}")
    return found
