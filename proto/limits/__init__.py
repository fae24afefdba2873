"""Arithmetic of limits: fixed windows, token buckets, back-off and ranking. Pure, clock given."""
