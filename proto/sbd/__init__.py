"""SBD, a relay addressed by public keys: its frames, both sides of a connection, encryption."""
