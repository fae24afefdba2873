"""The operator's side of the wasmCloud lattice: policies, pages, commands and processes.

The processes are of the package `lattice`; this app starts them and talks to them through Redis.
"""
