"""Operators' calls: the operations of REST over one websocket of the operator site."""
