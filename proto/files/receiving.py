"""State of one upload at its receiver: which chunks it has, and which it accepts.

    written without gaps  being written         not accepted yet
    |0 1 2 ... prefix-1|  within the window  |  further on |

Chunks may arrive in any order within a window that begins at the first missing one, and any number
of times. The owner calls `expect` before it writes a chunk, then `wrote` or `dropped`. Chunks
before `prefix` are known to be on disk, and only that number survives a crash.
"""

from __future__ import annotations

from enum import Enum

from proto.files.bounds import WINDOW_CHUNKS
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import Offer


class Verdict(Enum):
    """How to handle a chunk."""

    WRITE = "write"
    HAD_ALREADY = "had already"
    """Answer as if the chunk had been written now."""


class Receiving:
    """State of one upload.

    Args:
        offer: the offer.
        prefix: number of chunks that are on disk already, from the first on.

    Attributes:
        offer: the offer.
        prefix: number of chunks that are written without a gap, from the first on.
        next: number of the next chunk, for a sender that does not number its chunks.
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
        """Numbers of the chunks that are written after a missing one."""
        return tuple(sorted(self._beyond))

    @property
    def writing(self) -> int:
        """Number of chunks that are being written."""
        return len(self._writing)

    def expect(self, index: int, size_bytes: int) -> Verdict:
        """Decide how to handle a chunk that arrived.

        Raises:
            RefusedError: the chunk does not belong to this file, or is not accepted yet.
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
            # It is not answered yet: the sender repeated it too early.
            raise RefusedError(FileCode.BUSY, f"chunk {index} is being written")
        self._writing.add(index)
        self.next = max(self.next, index + 1)
        return Verdict.WRITE

    def wrote(self, index: int) -> bool:
        """Record that a chunk is on disk; return whether `prefix` has grown."""
        self._writing.discard(index)
        self._beyond.add(index)
        before = self.prefix
        while self.prefix in self._beyond:
            self._beyond.remove(self.prefix)
            self.prefix += 1
        return self.prefix > before

    def dropped(self, index: int) -> None:
        """Record that a chunk could not be written."""
        self._writing.discard(index)
        self.next = min(self.next, index)
