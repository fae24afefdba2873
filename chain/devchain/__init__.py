"""A stand-in node of tfchain, for tests and for work without a network.

It answers JSON-RPC over websocket as a node does, with metadata, storage, headers, transactions and
events in real SCALE, but runs no WebAssembly: `runtime` knows the few calls that matter to relays
and their clients. How a transaction goes through it:

    server, connection  ->  methods  ->  validity  ->  pool  ->  node (a block is due)
    node  ->  runtime (calls, fees, events)  ->  ledger (block, state)  ->  journal (file)
    node  ->  connection, server (new head, final head, fate of the transaction)

The state is real storage keys and values (`ledger` keeps what every block changed, so that each
block of the past can be asked), the metadata is written from a description in text (`pallets`).
Faults are switched while it runs by calls whose names begin with `dev_` (`knobs`).

Keys it funds at the start are the well-known development keys: TEST KEYS, worth nothing anywhere.
"""
