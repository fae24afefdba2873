"""The start of the gateway: identify its twin, and check whether others can reach it.

    keys -> own twin, by the account -> the twin's published data, compared with the options
                                          | differs
                                          v
                                        update_twin, signed by the own account, until it is final

Other twins read from the own twin which relays to use and which key to encrypt with, so a gateway
whose twin publishes other data could not be reached. Without a chain (`--twins`), or with
`--no-update`, the difference is only reported. A twin is never created: that costs money and
requires accepted terms.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from chain.errors import ChainError, OutcomeUnknownError
from peer.errors import PeerError, TwinsAwayError
from peer.identity import Identity
from peer.twins import Twin, TwinSource
from proto.chain import relays as relay_texts
from proto.identity import ss58

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

NO_TWIN = "no twin found on this network with given key"


class StartError(PeerError):
    """The gateway cannot start; the text is for its operator."""


async def own_twin(identity: Identity, source: TwinSource) -> Twin:
    """Return the twin of the own account.

    Raises:
        StartError: the twin does not exist, or the source is unavailable.
    """
    try:
        twin = await source.by_account(identity.account)
    except TwinsAwayError as error:
        raise StartError(f"failed to get own twin id: {error}") from None
    if twin is None:
        raise StartError(f"{NO_TWIN} (account {ss58.encode(identity.account)})")
    return twin


def differences(twin: Twin, identity: Identity, domains: Sequence[str]) -> list[str]:
    """Return how a twin's published data differs from the correct data; empty if it agrees."""
    found = []
    # The order has no meaning, and differs between clients.
    if set(twin.relays) != set(domains):
        listed = ", ".join(sorted(twin.relays)) or "none"
        found.append(f"relays: {listed}; they should be {', '.join(sorted(domains))}")
    if twin.pk != identity.pk:
        listed = f"0x{twin.pk.hex()}" if twin.pk else "none"
        found.append(f"pk: {listed}; it should be 0x{identity.pk.hex()}")
    return found


async def update(
    twin: Twin,
    identity: Identity,
    domains: Sequence[str],
    source: TwinSource,
    substrate: Sequence[str],
) -> Twin:
    """Update the published data of a twin on the chain; return the twin with the new data.

    Raises:
        StartError: the twin could not be changed.
    """
    # Imported here: only writing needs these.
    from chain.writes import Receipt, Writer

    relay = relay_texts.join(domains)

    def write() -> Receipt:
        return Writer(substrate, identity.key).update_twin(relay, identity.pk)

    logger.info("update twin details on the chain: this takes about 20 s")
    try:
        receipt = await _in_thread(write)
    except OutcomeUnknownError as error:
        # The node was lost, or slow: check the state of the chain itself.
        changed = await own_twin(identity, source)
        if differences(changed, identity, domains):
            raise StartError(f"failed to update twin information: {error}") from None
        logger.warning("the twin is updated, but the update is not confirmed as final: %s", error)
        return changed
    except ChainError as error:
        raise StartError(f"failed to update twin information: {error}") from None
    told = receipt.twin
    if told is None or (told.id, told.relay, told.pk) != (twin.id, relay, identity.pk):
        raise StartError("failed to update twin information: the chain did not announce it")
    logger.info("twin %d is updated, final in block 0x%s", twin.id, receipt.block_hash.hex())
    return Twin(twin.id, told.account, told.pk, relay_texts.split(told.relay))


async def _in_thread(function: Callable[[], _T]) -> _T:
    """Call a function in a daemon thread, which does not delay the end of the process."""
    outcome: Future[_T] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(function())
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="chain-write", daemon=True).start()
    return await asyncio.wrap_future(outcome)
