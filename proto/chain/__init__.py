"""Byte formats of what tfchain stores, sends and signs. Needs no connection, metadata or library.

Values are encoded in SCALE (`scale`). A twin (`twin`) is stored under a storage key (`storage`). It
is changed by a call in a transaction (`extrinsic`), and a block's events (`events`) contain it as a
whole after each change. A block is identified by the hash of its header (`headers`). `relays` has
the rules of the text in a twin that lists all its relays.

This package does not know the numbers of pallets, calls and events. They differ between runtime
versions and come from the node's metadata, so callers pass them as arguments.
"""
