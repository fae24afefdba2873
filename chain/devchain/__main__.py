"""`python -m chain.devchain`: the test node without Django."""

import sys

from chain.devchain.cli import main

if __name__ == "__main__":
    sys.exit(main())
