"""Deterministic simulation of everything a relay worker touches.

The worker code under `relay/queues` and `relay/sessions` reaches the outside through three doors
only: the loop's time, an injected `connect` for its Redis connections, and `RelaySocket` objects.
This package stands behind those doors: `loop` (virtual time, processes that can be frozen or
killed), `redis` (a Redis that speaks RESP2 bytes), `net` (the links to it), `socket` (a client's
TCP connection), `oracle` (what was promised) and `world` (all of it together).
"""
