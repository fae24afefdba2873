"""The lattice of wasmCloud 0.82: RPC over NATS, for programs that are not WebAssembly modules."""
