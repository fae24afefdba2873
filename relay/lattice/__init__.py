"""The operator's side of the wasmCloud lattice: policies, pages, commands and processes.

The programs of the processes are in the package `lattice`; this app starts them, and communicates
with them through Redis.
"""
