"""A raw connection to Redis for callers that make thousands of small requests a second.

`address` parses the URL, `resp` encodes commands and parses INFO's answer, and `pipe` keeps one
connection up and calls back with each reply. The relay's commits and the gateway's queues are built
on it; everything else uses redis-py.
"""

import hotpath  # noqa: F401 - the first to be imported
