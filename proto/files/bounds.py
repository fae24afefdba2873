"""Limits of uploads, each with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES: Final = 512 * 1024
"""Size of the part of a file in one `file.write`, except the last; as in the reference peer."""

WINDOW_CHUNKS: Final = 16
"""Number of chunks, from the first missing one on, that a receiver accepts. It never has more
chunks of an upload in memory."""

SENDER_WINDOW_CHUNKS: Final = 8
"""Maximum number of chunks that a sender has in flight: 4 MiB fill a link of 25 MB/s with a round
trip of 160 ms."""

FIRST_WINDOW_CHUNKS: Final = 2
"""Window that a sender begins with. It adds one chunk with each answer, to learn the response time
of a slow link."""

MAX_SIZE_BYTES: Final = 2**40
"""Maximum size of any file, whatever an operator allows: 1 TiB is two million chunks."""

MAX_NAME_BYTES: Final = 255
"""Maximum size of a file name: the limit of common file systems."""

MAX_COMMAND_BYTES: Final = 128
"""Maximum size of the command to call on arrival: it becomes part of a Redis key."""

MAX_ID_BYTES: Final = 256
"""Maximum size of an upload's id, which is the uid of its offer if the sender gives no checksum."""

MAX_NONCE_BYTES: Final = 64
"""Maximum size of the text that distinguishes one attempt of a sender from the next."""

MAX_JSON_BYTES: Final = 8192
"""Maximum size of the payload of an offer, a close or a status: far more than all fields at their
bounds."""

MAX_TAGS_BYTES: Final = 512
"""Maximum size of the tags of a chunk: id and number."""

FIRST_TIMEOUT_S: Final = 30.0
"""Time-out of a request as long as no response time of the link is known."""

OFFER_TIMEOUT_S: Final = 10.0
"""Maximum time-out of an offer: it is small, and is repeated as often as needed."""

SHORTEST_OFFER_S: Final = 1.0
"""Minimum time-out of an offer, if the sender is about to give up."""

MIN_TIMEOUT_S: Final = 5.0
"""Minimum time-out of a request: a receiver may be busy for a moment."""

MAX_TIMEOUT_S: Final = 120.0
"""Maximum time-out of a request."""

FIRST_PAUSE_S: Final = 0.5
"""Pause before an offer is first repeated; it doubles up to `MAX_PAUSE_S`."""

MAX_PAUSE_S: Final = 30.0
"""Maximum pause between two offers to a receiver that is unavailable."""

STALL_S: Final = 600.0
"""Time without any progress after which a sender gives up."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Limits of what a receiver accepts."""

    max_file_bytes: int = 4 * 2**30
    """Maximum size of one file."""
    quota_bytes: int = 16 * 2**30
    """Maximum size of all files of one twin together, unfinished ones at their full size."""
    max_files: int = 10_000
    """Maximum number of files of one twin: small files fill a disk too."""
    min_free_bytes: int = 2**30
    """Minimum free space of the disk: an offer that would leave less is refused."""
    max_open: int = 64
    """Maximum number of unfinished uploads of all twins."""
    max_open_per_twin: int = 4
    """Maximum number of unfinished uploads of one twin."""
    keep_s: float = 86_400.0
    """Seconds without a chunk after which an unfinished upload is deleted."""
    twins: frozenset[int] | None = None
    """Twins that may upload; None allows every twin that has a valid signature."""

    def __post_init__(self) -> None:
        if not 0 < self.max_file_bytes <= MAX_SIZE_BYTES:
            raise ValueError(f"the largest file must have 1 to {MAX_SIZE_BYTES} bytes")
        if self.quota_bytes < 1 or self.max_files < 1 or self.min_free_bytes < 0:
            raise ValueError("quotas must be above 0, the space to leave free not below")
        if not 0 < self.max_open_per_twin <= self.max_open or self.keep_s <= 0:
            raise ValueError("numbers of unfinished uploads and their time must be above 0")


TAKE_OVER_IDLE_S: Final = 60.0
"""Seconds without a chunk after which a new offer of the same twin may replace an unfinished
upload, if the twin is at its limit of unfinished uploads. Uploads of other twins are replaced only
after ten times as long, at the limit for all twins."""
