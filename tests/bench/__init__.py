"""Benchmarks: the relay beside a bare forwarder, in one run, on the same cores.

`python -m tests.bench` runs them. A row (`rows*.py`) starts what it measures (`targets.py`),
drives it with load generator processes (`load.py`, steered through `generators.py`) and returns
figures with their targets (`figures.py`), which `report.py` prints and keeps.
"""
