"""``python -m chaos``."""

import sys

from chaos.command import main

if __name__ == "__main__":
    sys.exit(main())
