"""What tfchain stores, sends and signs, as bytes: no connection, no metadata, no library's text.

Values travel in SCALE (`scale`). A twin (`twin`) is found under a storage key (`storage`), changes
by a call in a transaction (`extrinsic`) and is announced whole in a block's events (`events`); the
block is known by the hash of its header (`headers`). `relays` has the rules of the one text in a
twin that names all its relays.

Nothing here knows the numbers of pallets, calls and events: these move between runtimes and come
from the node's metadata, as arguments.
"""
