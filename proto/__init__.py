"""The protocols, without input and output: the cores of relay, gateway and clients."""

import hotpath  # noqa: F401 - the first to be imported
