"""Programs whose streams and calls are compared: a server and a client of each kind."""
