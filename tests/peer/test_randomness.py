"""Random bytes that are fetched in blocks are handed out only once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from peer.randomness import PIECES, random_bytes
from proto.rmb.bounds import NONCE_BYTES, UID_BYTES


@pytest.mark.parametrize("size", [0, 1, NONCE_BYTES, UID_BYTES, 1000])
def test_so_many_as_were_asked_for(size: int) -> None:
    assert [len(random_bytes(size)) for _ in range(2 * PIECES + 1)] == [size] * (2 * PIECES + 1)


def test_threads_never_get_the_same() -> None:
    count = 20_000
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: random_bytes(NONCE_BYTES), range(count)))
    assert len(set(taken)) == count


FORKING = """
import os
from peer.randomness import PIECES, random_bytes
random_bytes(12)  # the parent holds some from here on
child = os.fork()
for _ in range(PIECES - 1):
    os.write(1, random_bytes(12))
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_gets_others_than_its_parent() -> None:
    """A child gets other bytes than its parent.

    A Celery worker, for example, is forked from a process that may have made calls.
    """
    block = subprocess.run([sys.executable, "-c", FORKING], check=True, capture_output=True).stdout
    taken = {block[at : at + NONCE_BYTES] for at in range(0, len(block), NONCE_BYTES)}
    assert len(taken) == 2 * (PIECES - 1)
