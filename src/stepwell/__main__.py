"""``stepwell`` and ``python -m stepwell``: the command line, if what it needs is installed."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from stepwell.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("stepwell: the command line needs more: pip install 'stepwell[server]'")
    run()


if __name__ == "__main__":
    main()
