"""What a subscriber to storage was told last, and what is new since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chain.devchain.ledger import Block, Ledger
from proto.chain.headers import to_hex


class StorageWatch:
    """Some keys that a subscriber of state_subscribeStorage follows."""

    def __init__(self, ledger: Ledger, keys: Sequence[bytes]) -> None:
        self._ledger = ledger
        self._keys = tuple(dict.fromkeys(keys))
        self._told: dict[bytes, bytes | None] | None = None

    def changes(self, block: Block) -> dict[str, Any] | None:
        """What to tell after `block`, the newest; None if nothing changed. At first all is new."""
        values = {key: self._ledger.value(key, block) for key in self._keys}
        told, self._told = self._told, values
        new = [
            [to_hex(key), None if value is None else to_hex(value)]
            for key, value in values.items()
            if told is None or told[key] != value
        ]
        return {"block": to_hex(block.hash), "changes": new} if new else None
