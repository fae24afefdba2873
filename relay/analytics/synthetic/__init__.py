"""Made-up history, as like a real one as the jobs can tell.

`relay.analytics.generator` goes through the hours of it. For each of them `traffic` makes the rows
of its messages and `connections` those of its sessions, both among the twins of a `population`;
`rows` holds them as columns until their own hour is written. What is hidden in it for the jobs to
find is drawn beforehand (`incidents`) and told in a file beside it.
"""
