"""Commands that a peer answers by itself, in its own process: see `api.py`."""
