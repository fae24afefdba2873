"""`state_*`: values, keys, metadata, the version of the runtime, and calls of runtime functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from chain.devchain import accounts, calls, metadata, validity
from chain.devchain.bounds import (
    MAX_ID_CHARS,
    MAX_KEY_BYTES,
    MAX_KEYS_PER_PAGE,
    MAX_METHOD_CHARS,
    MAX_QUERIED_KEYS,
)
from chain.devchain.errors import StateDiscardedError
from chain.devchain.jsonrpc import Positional, RpcError
from chain.devchain.ledger import Block
from chain.devchain.methods.call import STATE_ERROR, Call, Methods, Topic, state_error
from chain.devchain.methods.chain import unsubscribe
from chain.devchain.pallets import SPEC_NAME, SPEC_VERSION, TRANSACTION_VERSION
from proto.chain import extrinsic, scale, storage
from proto.chain.bounds import ACCOUNT_BYTES, MAX_EXTRINSIC_BYTES
from proto.chain.errors import ChainFormatError
from proto.chain.headers import to_hex
from proto.chain.scale import Reader

_MAX_ARGUMENT_BYTES: Final = MAX_EXTRINSIC_BYTES + 8
"""Maximum size of the argument of state_call: a transaction with its length before and after it."""

RUNTIME_VERSION: Final = {
    "specName": SPEC_NAME,
    "implName": SPEC_NAME,
    "authoringVersion": 1,
    "specVersion": SPEC_VERSION,
    "implVersion": 1,
    # Core, Metadata, AccountNonceApi and TransactionPaymentApi, by the hash of their names. APIs
    # that only other nodes call are not offered.
    "apis": [
        ["0xdf6acb689907609b", 4],
        ["0x37e397fc7c91f5e4", 2],
        ["0xbc9d89904f5b923f", 1],
        ["0x37c8bb1350a9a2a8", 4],
    ],
    "transactionVersion": TRANSACTION_VERSION,
    "stateVersion": 0,
}


@cache
def _metadata() -> bytes:
    return metadata.build()


def _get_runtime_version(call: Call) -> object:
    _block_of(call, call.positional)
    return RUNTIME_VERSION


def _subscribe_runtime_version(call: Call) -> object:
    call.positional.finish()
    subscription = call.caller.subscribe(Topic.RUNTIME_VERSION)
    call.caller.notify(subscription, RUNTIME_VERSION)
    return subscription


def _get_metadata(call: Call) -> object:
    _block_of(call, call.positional)
    return to_hex(_metadata())


def _get_storage(call: Call) -> object:
    params = call.positional
    key = params.data(MAX_KEY_BYTES)
    return _hex_or_null(call.value(key, _block_of(call, params)))


def _get_keys_paged(call: Call) -> object:
    params = call.positional
    prefix = params.optional_data(MAX_KEY_BYTES) or b""
    count = params.number(0, MAX_KEYS_PER_PAGE)
    after = params.optional_data(MAX_KEY_BYTES) or b""
    block = _block_of(call, params)
    try:
        return [to_hex(key) for key in call.node.ledger.keys(prefix, after, count, block)]
    except StateDiscardedError as error:
        raise state_error(error) from None


def _query_storage_at(call: Call) -> object:
    params = call.positional
    keys = params.list_of_data(MAX_QUERIED_KEYS, MAX_KEY_BYTES)
    block = _block_of(call, params)
    changes = [[to_hex(key), _hex_or_null(call.value(key, block))] for key in keys]
    return [{"block": to_hex(block.hash), "changes": changes}]


def _subscribe_storage(call: Call) -> object:
    params = call.positional
    keys = params.list_of_data(MAX_QUERIED_KEYS, MAX_KEY_BYTES)
    params.finish()
    return call.caller.subscribe(Topic.STORAGE, keys)


def _call(call: Call) -> object:
    params = call.positional
    name = params.text(MAX_ID_CHARS)
    argument = params.data(_MAX_ARGUMENT_BYTES)
    block = _block_of(call, params)
    function = _RUNTIME_CALLS.get(name)
    if function is None:
        raise _execution_failed(f"Exported method {name[:MAX_METHOD_CHARS]} is not found")
    try:
        return to_hex(function(call, argument, block))
    except ChainFormatError as error:
        raise _execution_failed(f"Bad input data provided to {name}: {error}") from None


def _account_nonce(call: Call, argument: bytes, block: Block) -> bytes:
    account = scale.fixed("account", argument, ACCOUNT_BYTES)
    stored = call.value(storage.account_key(account), block)
    return scale.u32("nonce", accounts.decode(stored).nonce)


def _payment_info(call: Call, argument: bytes, block: Block) -> bytes:
    reader = Reader(argument)
    reader.blob("extrinsic", MAX_EXTRINSIC_BYTES)
    decoded = extrinsic.decode(argument[: reader.offset])
    size_bytes = reader.u32("length")
    reader.finish("argument")
    class_of_normal = b"\0"
    weight = calls.decode(decoded.call).weight
    return weight + class_of_normal + accounts.u128(validity.fee(size_bytes))


def _wrapped_metadata(call: Call, argument: bytes, block: Block) -> bytes:
    Reader(argument).finish("argument")
    return _blob(_metadata())


def _metadata_versions(call: Call, argument: bytes, block: Block) -> bytes:
    Reader(argument).finish("argument")
    return scale.compact("versions", 1) + scale.u32("version", metadata.VERSION)


def _metadata_at_version(call: Call, argument: bytes, block: Block) -> bytes:
    reader = Reader(argument)
    version = reader.u32("version")
    reader.finish("argument")
    return b"\1" + _blob(_metadata()) if version == metadata.VERSION else b"\0"


def _blob(value: bytes) -> bytes:
    return scale.blob("metadata", value, len(value))


def _block_of(call: Call, params: Positional) -> Block:
    block_hash = params.optional_hash()
    params.finish()
    return call.block(block_hash)


def _hex_or_null(value: bytes | None) -> str | None:
    return None if value is None else to_hex(value)


def _execution_failed(problem: str) -> RpcError:
    return RpcError(STATE_ERROR, f"Client error: Execution failed: {problem}")


_RUNTIME_CALLS: Final[dict[str, Callable[[Call, bytes, Block], bytes]]] = {
    "AccountNonceApi_account_nonce": _account_nonce,
    "TransactionPaymentApi_query_info": _payment_info,
    "Metadata_metadata": _wrapped_metadata,
    "Metadata_metadata_versions": _metadata_versions,
    "Metadata_metadata_at_version": _metadata_at_version,
}

METHODS: Final[Methods] = {
    "state_call": _call,
    "state_getKeysPaged": _get_keys_paged,
    "state_getMetadata": _get_metadata,
    "state_getRuntimeVersion": _get_runtime_version,
    "chain_getRuntimeVersion": _get_runtime_version,
    "state_getStorage": _get_storage,
    "state_getStorageAt": _get_storage,
    "state_queryStorageAt": _query_storage_at,
    "state_subscribeRuntimeVersion": _subscribe_runtime_version,
    "state_unsubscribeRuntimeVersion": unsubscribe,
    "state_subscribeStorage": _subscribe_storage,
    "state_unsubscribeStorage": unsubscribe,
}
