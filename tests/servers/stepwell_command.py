"""Stepwell's command line in a process that ends when its standard input closes, so that even a
killed test run leaves none behind: ``python -m tests.servers.stepwell_command serve ...``.
"""

import os
import sys
import threading

from stepwell.__main__ import main


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


threading.Thread(target=_end_with_parent, daemon=True).start()
sys.argv = ["stepwell", *sys.argv[1:]]
main()
