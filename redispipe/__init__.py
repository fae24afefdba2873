"""A raw connection to Redis for those who make thousands of small requests a second.

`address` reads the URL, `resp` encodes commands and reads INFO's answer, `pipe` keeps one
connection up and calls back with each reply. The relay's commits and the gateway's queues stand on
it; everything else uses redis-py.
"""

import hotpath  # noqa: F401 - the first to be imported
