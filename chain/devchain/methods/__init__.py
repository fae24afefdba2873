"""The methods of the node, one module for each group of names.

Each module has `METHODS`, which maps names to functions of a call. A function reads the parameters
of the call, queries or changes the node, and returns the result as a JSON value.
"""
