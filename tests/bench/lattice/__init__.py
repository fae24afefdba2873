"""Calls over NATS for the bench: raw and of the lattice."""
