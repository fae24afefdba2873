"""The twin's side: gateway, client library and command line."""

import hotpath  # noqa: F401 - the first to be imported
