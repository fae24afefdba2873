"""Synthetic history that the jobs cannot tell from a real one.

`relay.analytics.generator` goes through its hours. For each hour, `traffic` makes the rows of its
messages, `connections` those of its sessions, both among the twins of a `population`, and `lattice`
those of its invocations. `rows` keeps rows as columns until their own hour is written. `incidents`
draws beforehand what the history hides for the jobs to find; a file beside the history lists it.
"""
