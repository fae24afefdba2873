"""Which offers a receiver accepts: allowed twins, size, quota, free space, number of uploads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proto.files.bounds import TAKE_OVER_IDLE_S, UploadLimits
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import Offer


@dataclass(frozen=True, slots=True)
class Open:
    """An unfinished upload."""

    key: str
    twin: int
    size_bytes: int
    last_heard: float
    """Time at which its last chunk arrived, in the clock of `admit`'s `now`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Space and uploads in use at the moment."""

    finished_bytes: int
    """Size of the finished files of the requesting twin."""
    finished_files: int
    """Number of those files."""
    free_bytes: int
    """Free space of the disk."""
    open: Sequence[Open]
    """Unfinished uploads of all twins."""


def check_sender(twin: int, limits: UploadLimits) -> None:
    """Raise a RefusedError if this twin may not upload."""
    if limits.twins is not None and twin not in limits.twins:
        raise RefusedError(FileCode.NOT_ALLOWED, f"twin {twin} may not upload to this peer")


def admit(offer: Offer, twin: int, usage: Usage, limits: UploadLimits, now: float) -> Open | None:
    """Decide whether a new upload is accepted.

    Returns:
        The unfinished upload that must be abandoned to make room for it, or None.

    Raises:
        RefusedError: the upload is not accepted.
    """
    check_sender(twin, limits)
    if offer.size_bytes > limits.max_file_bytes:
        raise RefusedError(
            FileCode.TOO_LARGE,
            f"size of {offer.size_bytes} bytes is above the limit of {limits.max_file_bytes}",
        )
    victim = _make_room(twin, usage.open, limits, now)
    kept = [upload for upload in usage.open if upload is not victim]
    _check_quota(twin, offer.size_bytes, usage, kept, limits)
    # The bytes that unfinished uploads already have on disk are counted twice, to be on the safe
    # side.
    promised_bytes = sum(upload.size_bytes for upload in kept) + offer.size_bytes
    if usage.free_bytes - promised_bytes < limits.min_free_bytes:
        raise RefusedError(FileCode.NO_SPACE, "the disk has not enough space left")
    return victim


def readmit(upload: Open, usage: Usage, limits: UploadLimits) -> None:
    """Decide whether an unfinished upload is resumed after a restart.

    Its disk space was checked when it was accepted.

    Args:
        upload: the unfinished upload.
        usage: space and uploads in use without it.
        limits: current limits.

    Raises:
        RefusedError: the upload exceeds them.
    """
    own = sum(each.twin == upload.twin for each in usage.open)
    if own >= limits.max_open_per_twin:
        raise RefusedError(FileCode.BUSY, f"twin {upload.twin} has {own} uploads under way")
    if len(usage.open) >= limits.max_open:
        raise RefusedError(FileCode.BUSY, f"{len(usage.open)} uploads are under way")
    _check_quota(upload.twin, upload.size_bytes, usage, usage.open, limits)


def _check_quota(
    twin: int, size_bytes: int, usage: Usage, uploads: Sequence[Open], limits: UploadLimits
) -> None:
    own_bytes = sum(upload.size_bytes for upload in uploads if upload.twin == twin)
    total_bytes = usage.finished_bytes + own_bytes + size_bytes
    if total_bytes > limits.quota_bytes:
        raise RefusedError(
            FileCode.TOO_LARGE,
            f"twin {twin} would have {total_bytes} bytes here, the quota is {limits.quota_bytes}",
        )
    own_files = usage.finished_files + sum(upload.twin == twin for upload in uploads)
    if own_files >= limits.max_files:
        raise RefusedError(
            FileCode.TOO_LARGE, f"twin {twin} has {own_files} files here, that is its quota"
        )


def _make_room(twin: int, uploads: Sequence[Open], limits: UploadLimits, now: float) -> Open | None:
    own = [upload for upload in uploads if upload.twin == twin]
    if len(own) >= limits.max_open_per_twin:
        return _longest_idle(own, now - TAKE_OVER_IDLE_S, f"of twin {twin}")
    if len(uploads) >= limits.max_open:
        return _longest_idle(uploads, now - 10 * TAKE_OVER_IDLE_S, "of all twins")
    return None


def _longest_idle(uploads: Sequence[Open], before: float, whose: str) -> Open:
    idle = min(uploads, key=lambda upload: upload.last_heard)
    if idle.last_heard > before:
        raise RefusedError(FileCode.BUSY, f"{len(uploads)} uploads {whose} are under way")
    return idle
