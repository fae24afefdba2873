"""RMB envelopes: what is on the wire, how it is signed, sealed, examined and answered.

Everything here is pure: bytes and values in, bytes and values out. Time, randomness and twins
come in as arguments, so that both sides of the protocol can be run against each other in memory.
"""
