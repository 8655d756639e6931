"""``python -m bench <name>``: run one of the measurements."""

import importlib
import sys

NAMES = ("core", "page", "sandbox", "scale", "server", "state", "stream")


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print(
            f"usage: python -m bench <name> [--json]\n\nnames: {', '.join(NAMES)}", file=sys.stderr
        )
        return 2
    return importlib.import_module(f"bench.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
