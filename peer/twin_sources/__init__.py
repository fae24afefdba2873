"""Sources of twins: the chain, a CSV file, or the registry of a relay."""
