"""Django's own commands about accounts, with an entry in the audit log for each account they store.

They ask on the terminal for as long as somebody types, so they cannot run inside of `audit.change`:
all other changes would wait. What is held is the statement that stores the account, from the signal
Django sends before it to the one after it.
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
    """Write down each account that is stored in the block, in the transaction that stores it.

    Args:
        action: of the matrix.
        told: what the log has of the account then.
    """
    with contextlib.ExitStack() as held:  # which takes it back where storing fails
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
