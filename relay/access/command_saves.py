"""Django's own commands for accounts, with an entry in the audit log for each account they save.

They wait for input on the terminal, so they cannot run inside `audit.change`, which would block
all other changes meanwhile. The change spans only the statement that saves the account, from the
signal that Django sends before it to the one after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.auth.models import User
from django.db.models.signals import post_save, pre_save

from relay.access.actor import of_command
from relay.audit import services as audit


@contextlib.contextmanager
def audited(action: str, told: Callable[[User], Any]) -> Iterator[None]:
    """Audit each account that is saved in the block, in the transaction that saves it.

    Args:
        action: action of the matrix.
        told: function that returns what the log records of the account.
    """
    with contextlib.ExitStack() as held:  # rolls the change back if saving fails
        changes: list[audit.Change] = []

        def before(instance: User, **_: Any) -> None:
            change = audit.change(of_command(), action, target=instance.username)
            changes.append(held.enter_context(change))

        def after(instance: User, **_: Any) -> None:
            changes.pop().after = told(instance)
            held.close()

        pre_save.connect(before, User, weak=False)
        post_save.connect(after, User, weak=False)
        try:
            yield
        finally:
            pre_save.disconnect(before, User)
            post_save.disconnect(after, User)
