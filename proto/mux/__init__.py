"""Many flow-controlled streams over one websocket, without IO (`@matrixai/ws`)."""
