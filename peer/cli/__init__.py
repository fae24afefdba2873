"""`rmb`: the command line of a twin's owner."""
