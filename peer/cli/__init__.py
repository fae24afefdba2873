"""`rmb`: the command line for the owner of a twin."""
