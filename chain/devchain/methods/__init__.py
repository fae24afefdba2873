"""The methods of the node, one module for each group of names.

Each module offers `METHODS`: the name to a function of the call. A function reads the parameters
off the call, asks or changes the node, and returns the result as JSON has it.
"""
