"""The monitor of a lattice: checks every invocation that it sees, and reports what is wrong."""
