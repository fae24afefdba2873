"""Interpretation of the events of a block: changes of twins, and the result of a transaction.

`proto.chain.events` reads a twin from a record, byte for byte. The metadata is only needed to find
where the records begin, as the length of other events is not known otherwise. Most blocks do not
even need that: a block whose bytes do not contain the number of a twin event has none.
"""

from __future__ import annotations

from typing import Any, Final

from chain.errors import BlockUnreadableError
from chain.runtime import Runtime
from proto.chain import events
from proto.chain.errors import ChainFormatError
from proto.chain.events import TwinChange
from proto.chain.storage import PALLET

_SUCCESS: Final = ("System", "ExtrinsicSuccess")
_FAILURE: Final = ("System", "ExtrinsicFailed")


def twin_changes(value: bytes, runtime: Runtime) -> tuple[TwinChange, ...]:
    """Return the twins that were created or changed in a block, in order.

    Args:
        value: System.Events at the block.
        runtime: runtime of the block's parent.

    Raises:
        BlockUnreadableError: the events cannot be decoded.
    """
    stored = runtime.event_index(PALLET, events.TWIN_STORED)
    updated = runtime.event_index(PALLET, events.TWIN_UPDATED)
    if not any(index is not None and index in value for index in (stored, updated)):
        return ()
    try:
        changes = [
            events.read_twin_record(value, record.offset, stored, updated)
            for record in runtime.records(value)
            if record.pallet == PALLET and record.name in (events.TWIN_STORED, events.TWIN_UPDATED)
        ]
    except ChainFormatError as error:
        raise BlockUnreadableError(f"events of a block: {error}") from error
    return tuple(change for change in changes if change is not None)


def failure(value: bytes, runtime: Runtime, extrinsic: int) -> str | None:
    """Return the name of the error with which a transaction failed, or None if it succeeded.

    Args:
        value: System.Events at its block.
        runtime: runtime of the block's parent.
        extrinsic: its number in the block.

    Raises:
        BlockUnreadableError: the events cannot be decoded, or lack the result of the transaction.
    """
    for record in runtime.records(value):
        if record.extrinsic == extrinsic:
            if (record.pallet, record.name) == _SUCCESS:
                return None
            if (record.pallet, record.name) == _FAILURE:
                return _error_name(record.attributes, runtime)
    raise BlockUnreadableError(f"events of a block: nothing of how transaction {extrinsic} ended")


def _error_name(attributes: Any, runtime: Runtime) -> str:
    """Return `TwinNotExists` of a module, `BadOrigin` or `Token.FundsUnavailable` of the system."""
    error = attributes.get("dispatch_error") if isinstance(attributes, dict) else attributes
    match error:
        case {"Module": {"index": int(pallet), "error": str(number)}}:
            # The error has four bytes, of which modules use the first.
            return runtime.error_name(pallet, int(number[2:4], 16))
        case {"Module": {"index": int(pallet), "error": int(number)}}:
            return runtime.error_name(pallet, number)
        case {**kinds} if len(kinds) == 1:
            ((kind, detail),) = kinds.items()
            return f"{kind}.{detail}" if isinstance(detail, str) and detail else str(kind)
        case _:
            return str(error)
