"""Programs of the bench that call over NATS: with raw nats-py and with the lattice."""
