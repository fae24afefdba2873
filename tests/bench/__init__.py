"""Benchmarks: the relay and a bare forwarder (called B), measured in one run on the same cores.

`python -m tests.bench` runs them. A row (package `rows`) starts what it measures (`targets.py`),
drives it with load generator processes (`load.py`, controlled through `generators.py`) and returns
figures with their targets (`figures.py`), which `report.py` prints and stores.
"""
