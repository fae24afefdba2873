"""Deterministic simulation of everything that a relay worker interacts with.

The worker code under `relay/queues` and `relay/sessions` reaches the outside through three
interfaces only: the loop's time, an injected `connect` for its Redis connections, and `RelaySocket`
objects. This package implements these: `loop` (virtual time, processes that can be frozen or
killed), `redis` (a Redis that speaks RESP2 bytes), `net` (the links to it), `socket` (a client's
TCP connection), `oracle` (the promises that are checked) and `world` (all of it together).
"""
