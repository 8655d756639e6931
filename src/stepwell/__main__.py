"""``stepwell`` and ``python -m stepwell``: the command line."""

from stepwell.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
