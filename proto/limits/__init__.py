"""Algorithms of limits: fixed windows, token buckets, back-off and ranking. Pure: callers pass the
clock.
"""
