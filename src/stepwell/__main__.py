"""``python -m stepwell``."""

from stepwell.cli.main import main

if __name__ == "__main__":
    main()
