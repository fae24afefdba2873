"""Distribution of test files to xdist workers: end-to-end tests and all others at the same time.

End-to-end tests wait more than they compute, other tests hardly wait. Running one kind after the
other leaves the cores half idle first and overloads them later. So most workers take files from the
front of the order, where the end-to-end tests are, and some from its back; they meet in the middle,
where files are short, so that no long one remains at the end. Each file is run by one worker.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

FIRST: Final = "tests/hotpath/test_compiled_form.py"
"""File that runs first: it compiles for a minute, and then runs other tests."""
FRONT: Final = ("tests/e2e/", "tests/peer/")
"""Folders of tests that start relays, gateways and browsers."""
BACK: Final = "tests/relay/analytics/"
"""Folder of tests that share a Spark in one worker, and take longest of all without a relay."""

ONE_FROM_BACK_OF: Final = 3
"""Number of workers of which the last takes files from the back."""


def place(node_id: str) -> int:
    """Return the sort key of a test; tests with the same key keep their order."""
    if node_id.startswith(FIRST):
        return -1
    return 1 - node_id.startswith(FRONT) + node_id.startswith(BACK)


def begins_at_back(worker: str) -> bool:
    """Check whether a worker, gw0 and so on, takes files from the back: the third, the sixth..."""
    return int(worker.removeprefix("gw")) % ONE_FROM_BACK_OF == ONE_FROM_BACK_OF - 1


def bring_forward(files: OrderedDict[str, Any], worker: str) -> None:
    """Move the file that a worker takes next to the front."""
    if files and begins_at_back(worker):
        files.move_to_end(next(reversed(files)), last=False)


class TwoEnds(LoadFileScheduling):
    """Scheduler as of `--dist loadfile`, with files taken from both ends of their order."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        bring_forward(self.workqueue, node.gateway.id)
        super()._assign_work_unit(node)
