"""What the alarms go by: readers look at what exists, one for each kind of thing.

`take` has every reader look once. What a reader cannot read is told as unknown, with the reason,
and takes nothing else away; while Redis is away its readers are not even tried.
"""
