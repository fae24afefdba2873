"""A test node that behaves like tfchain's, for tests and for work without a network.

It answers JSON-RPC over websocket as a node does, with metadata, storage, headers, transactions and
events in real SCALE, but runs no WebAssembly: `runtime` implements the few calls that matter to
relays and their clients. A transaction passes through it as follows:

    server, connection  ->  methods  ->  validity  ->  pool  ->  node (a block is due)
    node  ->  runtime (calls, fees, events)  ->  ledger (block, state)  ->  journal (file)
    node  ->  connection, server (new head, final head, status of the transaction)

The state consists of real storage keys and values. `ledger` keeps the changes of every block, so
that the state of any past block can be read. The metadata is generated from a textual description
(`pallets`). Faults are switched on and off at run time by calls whose names begin with `dev_`
(`knobs`).

The keys of the accounts that it funds at the start are the well-known development keys: TEST KEYS,
which are worth nothing anywhere.
"""
