"""Modules: commands that a peer answers in its own process, see `api.py`."""
