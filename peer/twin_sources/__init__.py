"""Where twins are looked up: the chain, a CSV file, or the registry of a relay."""
