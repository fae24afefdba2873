"""Limits of uploads: a constant, its unit, its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES: Final = 512 * 1024
"""Of a file in one `file.write`, the last one excepted; the reference's size."""

WINDOW_CHUNKS: Final = 16
"""A receiver takes chunks up to this far beyond the first one that is missing, and has no more of
an upload in memory."""

SENDER_WINDOW_CHUNKS: Final = 8
"""Chunks a sender has under way: 4 MiB fill a link of 25 MB/s with an answer time of 160 ms."""

FIRST_WINDOW_CHUNKS: Final = 2
"""A sender begins with this many and adds one with each answer, to learn a slow link's time."""

MAX_SIZE_BYTES: Final = 2**40
"""Of any file, whatever an operator allows: 1 TiB are two million chunks."""

MAX_NAME_BYTES: Final = 255
"""Of a file name: what common file systems take."""

MAX_COMMAND_BYTES: Final = 128
"""Of the command to call on arrival: it becomes part of a Redis key."""

MAX_ID_BYTES: Final = 256
"""Of an upload's id: the uid of its offer where the sender names no checksum."""

MAX_NONCE_BYTES: Final = 64
"""Of the text that tells one attempt of a sender from the next."""

MAX_JSON_BYTES: Final = 8192
"""Of the payload of an offer, a close, a status: all fields at their bounds are far smaller."""

MAX_TAGS_BYTES: Final = 512
"""Of the tags of a chunk: id and number."""

FIRST_TIMEOUT_S: Final = 30.0
"""How long an answer is waited for while nothing is known of the link."""

OFFER_TIMEOUT_S: Final = 10.0
"""The longest wait for the answer to an offer: it is small, and repeated as long as it takes."""

SHORTEST_OFFER_S: Final = 1.0
"""... and the shortest, where the sender gives up soon."""

MIN_TIMEOUT_S: Final = 5.0
"""The shortest wait for an answer: a receiver may be busy for a moment."""

MAX_TIMEOUT_S: Final = 120.0
"""The longest wait for an answer."""

FIRST_PAUSE_S: Final = 0.5
"""Before an offer is repeated; doubles up to the longest."""

MAX_PAUSE_S: Final = 30.0
"""Between two offers to a receiver that is away."""

STALL_S: Final = 600.0
"""A sender gives up after so long without a word of the receiver."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What a receiver takes."""

    max_file_bytes: int = 4 * 2**30
    """Size of one file."""
    quota_bytes: int = 16 * 2**30
    """All files of one twin together, unfinished ones at their full size."""
    max_files: int = 10_000
    """Files of one twin: small ones fill a disk too."""
    min_free_bytes: int = 2**30
    """An offer is refused that would leave less of the disk free."""
    max_open: int = 64
    """Unfinished uploads of all twins."""
    max_open_per_twin: int = 4
    """Unfinished uploads of one twin."""
    keep_s: float = 86_400.0
    """An unfinished upload without a chunk for so long is deleted."""
    twins: frozenset[int] | None = None
    """The twins that may upload; None: every twin that has a valid signature."""

    def __post_init__(self) -> None:
        if not 0 < self.max_file_bytes <= MAX_SIZE_BYTES:
            raise ValueError(f"the largest file must have 1 to {MAX_SIZE_BYTES} bytes")
        if self.quota_bytes < 1 or self.max_files < 1 or self.min_free_bytes < 0:
            raise ValueError("quotas must be above 0, the space to leave free not below")
        if not 0 < self.max_open_per_twin <= self.max_open or self.keep_s <= 0:
            raise ValueError("numbers of unfinished uploads and their time must be above 0")


TAKE_OVER_IDLE_S: Final = 60.0
"""A twin that is at its number of unfinished uploads loses the one without a chunk for longest, if
that has been so for so long; other twins' are only taken after ten times as long."""
