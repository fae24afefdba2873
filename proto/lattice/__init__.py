"""The lattice of wasmCloud 0.82: keys, subjects, messages and their checks (RPC over NATS)."""
