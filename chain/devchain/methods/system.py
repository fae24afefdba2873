"""`system_*` and `rpc_*`: information about the node."""

from __future__ import annotations

from typing import Final

from chain.devchain.bounds import MAX_ID_CHARS
from chain.devchain.jsonrpc import invalid_params
from chain.devchain.methods.call import Call, Method, Methods
from chain.devchain.pallets import SS58_PREFIX, TOKEN_DECIMALS, TOKEN_SYMBOL
from proto.identity import ss58
from proto.identity.errors import AddressError

_NAME: Final = "devchain"
_VERSION: Final = "0.1.0"
_PROPERTIES: Final = {
    "ss58Format": SS58_PREFIX,
    "tokenDecimals": TOKEN_DECIMALS,
    "tokenSymbol": TOKEN_SYMBOL,
}
_HEALTH: Final = {"peers": 0, "isSyncing": False, "shouldHavePeers": False}


def _constant(value: object) -> Method:
    def answer(call: Call) -> object:
        call.positional.finish()
        return value

    return answer


def _account_next_index(call: Call) -> object:
    params = call.positional
    address = params.text(MAX_ID_CHARS)
    params.finish()
    try:
        account = ss58.decode(address)
    except AddressError as error:
        raise invalid_params(f"parameter 1: {error}") from None
    return call.node.pool.next_nonce(account, call.node.nonce_of(account))


METHODS: Final[Methods] = {
    "system_accountNextIndex": _account_next_index,
    "account_nextIndex": _account_next_index,
    "system_chain": _constant("TFChain stand-in"),
    "system_chainType": _constant("Development"),
    "system_health": _constant(_HEALTH),
    "system_name": _constant(_NAME),
    "system_nodeRoles": _constant(["Authority"]),
    "system_properties": _constant(_PROPERTIES),
    "system_version": _constant(_VERSION),
}
