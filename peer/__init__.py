"""The peer, the twin's side of the protocol: gateway, client library and command line."""

import hotpath  # noqa: F401 - the first to be imported
