"""Values last sent to a storage subscriber, and changes since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chain.devchain.ledger import Block, Ledger
from proto.chain.headers import to_hex


class StorageWatch:
    """Keys that a subscriber of state_subscribeStorage watches."""

    def __init__(self, ledger: Ledger, keys: Sequence[bytes]) -> None:
        self._ledger = ledger
        self._keys = tuple(dict.fromkeys(keys))
        self._told: dict[bytes, bytes | None] | None = None

    def changes(self, block: Block) -> dict[str, Any] | None:
        """Return what to send after `block`, the newest: at first all values, then changed ones, or
        None.
        """
        values = {key: self._ledger.value(key, block) for key in self._keys}
        told, self._told = self._told, values
        new = [
            [to_hex(key), None if value is None else to_hex(value)]
            for key, value in values.items()
            if told is None or told[key] != value
        ]
        return {"block": to_hex(block.hash), "changes": new} if new else None
