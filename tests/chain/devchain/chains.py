"""Stand-in chains in this process, with a clock that only tests advance."""

from __future__ import annotations

from collections.abc import Iterable

from chain.devchain import genesis
from chain.devchain.knobs import Knobs
from chain.devchain.ledger import Ledger
from chain.devchain.node import Journal, Listener, Node
from proto.chain import extrinsic
from proto.chain.twin import Twin
from proto.identity.signing import SigningKey

# TEST KEYS, which are public.
ALICE = genesis.development_key("Alice")
BOB = genesis.development_key("Bob")
START_S = 1_700_000_000.0
INSTANT_KNOBS = {"block_time_s": 0.0, "finality_delay_s": 0.0}


class Clock:
    """Clock, in seconds, that only `now_s += ...` advances."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


def new_node(
    twins: Iterable[Twin] = (), journal: Journal | None = None, ledger: Ledger | None = None
) -> Node:
    """Return a node with the development accounts and some twins; its blocks are final at once."""
    ledger = ledger or Ledger(genesis.block(genesis.state(twins)))
    return Node(ledger, Knobs(**INSTANT_KNOBS), Clock(), ALICE.account, journal)


def signed(
    node: Node, key: SigningKey, call: bytes, nonce: int | None = None, tip: int = 0
) -> bytes:
    """Return a signed transaction with the given nonce, or the next one."""
    if nonce is None:
        nonce = node.pool.next_nonce(key.account, node.nonce_of(key.account))
    return extrinsic.sign(call, key, node.chain, nonce, tip)


class Heads(Listener):
    """Listener that records the heads it is notified of."""

    def __init__(self, node: Node) -> None:
        self.best: list[int] = []
        self.final: list[int] = []
        node.listeners.add(self)

    def best_head(self, block: object) -> None:
        self.best.append(block.number)  # type: ignore[attr-defined]

    def final_head(self, block: object) -> None:
        self.final.append(block.number)  # type: ignore[attr-defined]
