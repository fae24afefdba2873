"""Streams over one websocket: the relay's side."""
