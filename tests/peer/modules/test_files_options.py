"""The gateway's options for uploads."""

from __future__ import annotations

import argparse

import pytest

from peer.modules.files_options import add_upload_options, limits_of, size
from proto.files.bounds import UploadLimits


def parsed(*arguments: str) -> UploadLimits:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_upload_options(parser)
    return limits_of(parser.parse_args(arguments))


def test_without_options_the_limits_are_the_usual_ones() -> None:
    assert parsed() == UploadLimits()


def test_each_option() -> None:
    found = parsed(
        *("--upload-max", "500M", "--upload-quota", "2G", "--upload-reserve", "0"),
        *("--upload-from", "7", "--upload-from", "8"),
    )
    assert found == UploadLimits(
        max_file_bytes=500 * 2**20,
        quota_bytes=2**31,
        min_free_bytes=0,
        twins=frozenset((7, 8)),
    )


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("0", 0), ("1", 1), ("1k", 1024), ("1 MiB", 2**20), ("2GB", 2**31), ("1T", 2**40)],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5G", "1X", "٣", "9" * 20, "99999T"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="invalid size"):
        size(text)


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--upload-max", "0"), ("--upload-max", "2T"), ("--upload-quota", "0")),
        *(("--upload-from", "0"), ("--upload-from", "x"), ("--upload-from", "4294967296")),
    ],
)
def test_values_that_make_no_sense(arguments: tuple[str, str]) -> None:
    with pytest.raises((ValueError, argparse.ArgumentError)):
        parsed(*arguments)
