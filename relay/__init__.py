"""The message relay."""

import hotpath  # noqa: F401 - the first to be imported
