"""The account of one upload at its receiver: which chunks are there, and which may come.

    written so far        being written         not taken yet
    |0 1 2 ... prefix-1|  within the window  |  further on |

Chunks may come in any order within a window beyond the first missing one, and any number of times.
The owner calls `expect` before it writes one, then `wrote` or `dropped`; chunks up to `prefix` are
known to be on disk, and only that number is kept over a crash.
"""

from __future__ import annotations

from enum import Enum

from proto.files.bounds import WINDOW_CHUNKS
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import Offer


class Verdict(Enum):
    """What to do with a chunk."""

    WRITE = "write"
    HAD_ALREADY = "had already"
    """Answer as if it were written now."""


class Receiving:
    """One upload.

    Args:
        offer: what was offered.
        prefix: how many chunks are on disk already, from the first on.

    Attributes:
        offer: what was offered.
        prefix: so many chunks from the first on are written.
        next: number of a chunk whose sender does not number them.
    """

    def __init__(self, offer: Offer, prefix: int = 0) -> None:
        self.offer = offer
        self.prefix = min(prefix, offer.chunks)
        self._beyond: set[int] = set()
        self._writing: set[int] = set()
        self.next = self.prefix

    @property
    def complete(self) -> bool:
        """Whether every chunk is written."""
        return self.prefix == self.offer.chunks

    @property
    def beyond(self) -> tuple[int, ...]:
        """Chunks that are written after a missing one."""
        return tuple(sorted(self._beyond))

    @property
    def writing(self) -> int:
        """How many chunks are being written."""
        return len(self._writing)

    def expect(self, index: int, size_bytes: int) -> Verdict:
        """Judges a chunk that came.

        Raises:
            RefusedError: it is none of this file's, or may not come yet.
        """
        if not 0 <= index < self.offer.chunks:
            raise RefusedError(
                FileCode.BAD_REQUEST, f"chunk {index} of {self.offer.chunks} does not exist"
            )
        wanted_bytes = self.offer.chunk_size(index)
        if size_bytes != wanted_bytes:
            raise RefusedError(
                FileCode.BAD_REQUEST,
                f"chunk {index} has {size_bytes} bytes, it must have {wanted_bytes}",
            )
        if index < self.prefix or index in self._beyond:
            return Verdict.HAD_ALREADY
        if index >= self.prefix + WINDOW_CHUNKS:
            raise RefusedError(
                FileCode.AHEAD, f"chunk {index} is outside the window that begins at {self.prefix}"
            )
        if index in self._writing:
            # Not answered yet: whoever sent it again did so too early.
            raise RefusedError(FileCode.BUSY, f"chunk {index} is being written")
        self._writing.add(index)
        self.next = max(self.next, index + 1)
        return Verdict.WRITE

    def wrote(self, index: int) -> bool:
        """Takes note that a chunk is on disk; returns whether `prefix` has grown."""
        self._writing.discard(index)
        self._beyond.add(index)
        before = self.prefix
        while self.prefix in self._beyond:
            self._beyond.remove(self.prefix)
            self.prefix += 1
        return self.prefix > before

    def dropped(self, index: int) -> None:
        """Takes note that a chunk could not be written."""
        self._writing.discard(index)
        self.next = min(self.next, index)
