"""SBD on the relay (`proto.sbd`): connections, the switch between them, other workers."""
