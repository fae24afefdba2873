"""RMB envelopes: their wire format, signatures, encryption, validation and answers.

Everything here is pure: bytes and values in, bytes and values out. Time, randomness and twins are
passed as arguments, so that both sides of the protocol can be run against each other in memory.
"""
