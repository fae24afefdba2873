"""`chain_*`: blocks, their hashes and headers, and subscriptions to new ones."""

from __future__ import annotations

import re
from typing import Any, Final

from chain.devchain.bounds import MAX_ID_CHARS, MAX_QUERIED_KEYS
from chain.devchain.jsonrpc import invalid_params
from chain.devchain.ledger import Block
from chain.devchain.methods.call import Call, Methods, Topic
from proto.chain.bounds import MAX_U32
from proto.chain.headers import to_hex

_HEX_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")


def _get_block_hash(call: Call) -> object:
    params = call.positional
    wanted = params.take()
    params.finish()
    if wanted is None:
        return to_hex(call.node.ledger.best.hash)
    if isinstance(wanted, list):
        if len(wanted) > MAX_QUERIED_KEYS:
            raise invalid_params(f"parameter 1: must be a list of at most {MAX_QUERIED_KEYS}")
        return [_hash_at(call, each) for each in wanted]
    return _hash_at(call, wanted)


def _hash_at(call: Call, wanted: Any) -> str | None:
    if isinstance(wanted, str) and _HEX_NUMBER.fullmatch(wanted):
        wanted = int(wanted, 16)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= MAX_U32:
        raise invalid_params(f"parameter 1: must be a number from 0 to {MAX_U32}")
    block = call.node.ledger.at(wanted)
    return to_hex(block.hash) if block else None


def _get_finalized_head(call: Call) -> object:
    call.positional.finish()
    return to_hex(call.node.final.hash)


def _get_header(call: Call) -> object:
    block = _find(call)
    return block.header.to_json() if block else None


def _get_block(call: Call) -> object:
    block = _find(call)
    if block is None:
        return None
    extrinsics = [to_hex(each) for each in block.extrinsics]
    return {
        "block": {"header": block.header.to_json(), "extrinsics": extrinsics},
        "justifications": None,
    }


def _find(call: Call) -> Block | None:
    params = call.positional
    block_hash = params.optional_hash()
    params.finish()
    ledger = call.node.ledger
    return ledger.best if block_hash is None else ledger.block(block_hash)


def _subscribe_best(call: Call) -> object:
    return _subscribe(call, Topic.BEST_HEADS, call.node.ledger.best)


def _subscribe_all(call: Call) -> object:
    return _subscribe(call, Topic.ALL_HEADS, call.node.ledger.best)


def _subscribe_final(call: Call) -> object:
    return _subscribe(call, Topic.FINAL_HEADS, call.node.final)


def _subscribe(call: Call, topic: Topic, head: Block) -> object:
    call.positional.finish()
    subscription = call.caller.subscribe(topic)
    call.caller.notify(subscription, head.header.to_json())
    return subscription


def unsubscribe(call: Call) -> object:
    """End any subscription of the connection."""
    params = call.positional
    subscription = params.text(MAX_ID_CHARS)
    params.finish()
    return call.caller.unsubscribe(subscription)


METHODS: Final[Methods] = {
    "chain_getBlock": _get_block,
    "chain_getBlockHash": _get_block_hash,
    "chain_getHead": _get_block_hash,
    "chain_getFinalizedHead": _get_finalized_head,
    "chain_getFinalisedHead": _get_finalized_head,
    "chain_getHeader": _get_header,
    "chain_subscribeAllHeads": _subscribe_all,
    "chain_unsubscribeAllHeads": unsubscribe,
    # A node has these under several names; gsrpc uses the singular ones.
    "chain_subscribeNewHeads": _subscribe_best,
    "chain_subscribeNewHead": _subscribe_best,
    "subscribe_newHead": _subscribe_best,
    "chain_unsubscribeNewHeads": unsubscribe,
    "chain_unsubscribeNewHead": unsubscribe,
    "unsubscribe_newHead": unsubscribe,
    "chain_subscribeFinalizedHeads": _subscribe_final,
    "chain_subscribeFinalisedHeads": _subscribe_final,
    "chain_unsubscribeFinalizedHeads": unsubscribe,
    "chain_unsubscribeFinalisedHeads": unsubscribe,
}
