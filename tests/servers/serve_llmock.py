"""Runs llmock on a free port, until its standard input closes; started by llmock_server.py."""

import os
import sys
import threading

from llmock.cli import app


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    app(["serve", "--host", "127.0.0.1", "--port", "0"])
