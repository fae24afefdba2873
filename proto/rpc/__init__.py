"""Remote calls over streams, one call each, without IO (`@matrixai/rpc`)."""
