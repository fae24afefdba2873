"""The upload options of `rmb-peer` and `rmb serve`, and their conversion to limits."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Final

from proto.files.bounds import MAX_SIZE_BYTES, UploadLimits
from proto.rmb.bounds import MAX_TWIN

_SIZE: Final = re.compile(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def add_upload_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for upload limits; the folder itself is `--uploads`."""
    usual = UploadLimits()
    group = parser.add_argument_group("uploads", "limits of the folder that --uploads names")
    group.add_argument(
        "--upload-max",
        metavar="SIZE",
        type=size,
        default=usual.max_file_bytes,
        help="largest file, such as 500M or 4G (default 4G)",
    )
    group.add_argument(
        "--upload-quota",
        metavar="SIZE",
        type=size,
        default=usual.quota_bytes,
        help="space for all files of one twin (default 16G)",
    )
    group.add_argument(
        "--upload-reserve",
        metavar="SIZE",
        type=size,
        default=usual.min_free_bytes,
        help="disk space to keep free (default 1G)",
    )
    group.add_argument(
        "--upload-from",
        metavar="TWIN",
        type=_twin,
        action="append",
        help="twin that may upload; repeatable (default: every twin)",
    )


def limits_of(options: argparse.Namespace) -> UploadLimits:
    """Return the upload limits that the options specify.

    Raises:
        ValueError: a value is out of range; the text names the option and the bound.
    """
    if not 0 < options.upload_max <= MAX_SIZE_BYTES:
        raise ValueError(f"--upload-max: must be from 1 to {MAX_SIZE_BYTES} bytes")
    if options.upload_quota < 1:
        raise ValueError("--upload-quota: must be above 0")
    return UploadLimits(
        max_file_bytes=options.upload_max,
        quota_bytes=options.upload_quota,
        min_free_bytes=options.upload_reserve,
        twins=None if options.upload_from is None else frozenset(options.upload_from),
    )


def upload_folder(text: str) -> Path:
    """Return the folder that `--uploads` names.

    Raises:
        ValueError: it is not a folder, or is not writable.
    """
    if not text:
        raise ValueError("--uploads: is empty; use the path of a folder")
    folder = Path(os.path.expanduser(text))  # a `~name` of no known user is kept
    if not folder.is_dir():
        raise ValueError(f"--uploads {text}: not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"--uploads {text}: cannot be written to")
    return folder.resolve()


def size(text: str) -> int:
    """Parse a number of bytes: `1048576`, `1M`, `1MiB` and `1 MB` are the same."""
    found = _SIZE.fullmatch(text.replace(" ", ""))
    size_bytes = int(found[1]) * _UNITS[found[2].lower()] if found else -1
    if not 0 <= size_bytes <= MAX_SIZE_BYTES * 1024:
        raise argparse.ArgumentTypeError(f"invalid size {text[:40]!r}; write 500M or 4G")
    return size_bytes


def _twin(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_TWIN):
        raise argparse.ArgumentTypeError(f"invalid twin id {text[:40]!r}")
    return int(text)
