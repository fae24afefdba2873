"""Which xdist worker runs which test file: end-to-end tests and all others at the same time.

End-to-end tests wait more than they work, other tests hardly wait. One kind after the other leaves
the cores half idle first and fights for them later. So most workers take files from the front of
the order, where the end-to-end tests are, and some from its back; they meet in the middle, where
files are short, so that none is left over at the end. A file stays with one worker.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

FIRST: Final = "tests/hotpath/test_compiled_form.py"
"""It compiles for a minute, and then runs other tests."""
FRONT: Final = ("tests/e2e/", "tests/peer/")
"""They start relays, gateways and browsers."""
BACK: Final = "tests/relay/analytics/"
"""They share a Spark in one worker, and take longest of all tests without a relay."""

ONE_FROM_BACK_OF: Final = 3
"""Of so many workers the last begins at the back."""


def place(node_id: str) -> int:
    """Sorts the tests of a run; those with the same place stay as they are."""
    if node_id.startswith(FIRST):
        return -1
    return 1 - node_id.startswith(FRONT) + node_id.startswith(BACK)


def begins_at_back(worker: str) -> bool:
    """Whether a worker, gw0 and so on, takes files from the back: the third, the sixth..."""
    return int(worker.removeprefix("gw")) % ONE_FROM_BACK_OF == ONE_FROM_BACK_OF - 1


def bring_forward(files: OrderedDict[str, Any], worker: str) -> None:
    """Put the file that a worker takes next in front."""
    if files and begins_at_back(worker):
        files.move_to_end(next(reversed(files)), last=False)


class TwoEnds(LoadFileScheduling):
    """As `--dist loadfile`, with the files taken from both ends of their order."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        bring_forward(self.workqueue, node.gateway.id)
        super()._assign_work_unit(node)
