"""`author_*`: submission and status of transactions."""

from __future__ import annotations

from typing import Final

from chain.devchain.errors import InvalidTransactionError
from chain.devchain.jsonrpc import RpcError
from chain.devchain.methods.call import Call, Methods, Topic
from chain.devchain.methods.chain import unsubscribe
from chain.devchain.pool import Watcher, is_last
from proto.chain.bounds import MAX_EXTRINSIC_BYTES
from proto.chain.headers import to_hex

_MAX_BYTES: Final = MAX_EXTRINSIC_BYTES + 4
"""Maximum size of a transaction, including its length prefix."""


def _submit(call: Call) -> object:
    return to_hex(_send(call, None))


def _submit_and_watch(call: Call) -> object:
    subscription = call.caller.subscribe(Topic.TRANSACTION)

    def tell(fate: object) -> None:
        call.caller.notify(subscription, fate)
        if is_last(fate):
            call.caller.unsubscribe(subscription)

    try:
        _send(call, tell)
    except RpcError:
        call.caller.unsubscribe(subscription)
        raise
    return subscription


def _send(call: Call, watcher: Watcher | None) -> bytes:
    params = call.positional
    data = params.data(_MAX_BYTES)
    params.finish()
    try:
        return call.node.submit(data, watcher)
    except InvalidTransactionError as error:
        raise RpcError(error.code, error.message, error.data or None) from None


def _pending(call: Call) -> object:
    call.positional.finish()
    return [to_hex(data) for data in call.node.pool.pending()]


METHODS: Final[Methods] = {
    "author_pendingExtrinsics": _pending,
    "author_submitAndWatchExtrinsic": _submit_and_watch,
    "author_submitExtrinsic": _submit,
    "author_unwatchExtrinsic": unsubscribe,
}
