"""Readings of the relay for the alarms, with one reader for each kind of reading.

`take` calls every reader once. What a reader cannot read is reported as unknown, with the reason,
and does not affect other readers. While Redis is unavailable, readers that need it are skipped.
"""
