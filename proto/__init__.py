"""Protocol implementations that do no I/O: the cores of the relay, the gateway and the clients."""

import hotpath  # noqa: F401 - the first to be imported
