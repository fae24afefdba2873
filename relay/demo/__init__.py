"""`make demo`: three twins, each in its own process, exchange messages through the running relay.

It needs only a relay started with --embedded, whose data folder contains the relay's address and
the secrets of the demo twins. The relay uses this package only at its start, to register the twins.
"""
