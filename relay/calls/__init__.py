"""Operators' calls: what REST offers, over one websocket of the operator site."""
