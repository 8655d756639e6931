"""``./dev docs [--serve]``: builds the site in strict mode, llms.txt included, or serves it."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Beside this interpreter, whatever is on the PATH.
ZENSICAL = Path(sys.executable).with_name("zensical")


def for_the_site(text: str) -> str:
    """llms.txt of the repository, with the addresses that pages have in the site.

    >>> for_the_site("- [Tools](docs/learn/tools.md): functions")
    '- [Tools](learn/tools.html): functions'
    """
    return re.sub(r"\]\(docs/(.*?)\.md\)", r"](\1.html)", text)


def built(root: Path) -> int:
    """The exit code of Zensical for the pages under that folder, built into its ``site/``."""
    # Strict mode looks at the pages that it renders, and what is cached is not rendered again.
    shutil.rmtree(root / "site", ignore_errors=True)
    command = [ZENSICAL, "build", "--clean", "--strict"]
    code = subprocess.run(command, cwd=root, check=False).returncode
    if code == 0:
        text = (root / "llms.txt").read_text("utf-8")
        (root / "site" / "llms.txt").write_text(for_the_site(text), "utf-8")
    return code


def main() -> int:
    """Build, and serve if asked to."""
    parser = argparse.ArgumentParser(prog="./dev docs", description="Builds the docs into site/.")
    parser.add_argument("--serve", action="store_true", help="serve them, and build what changes")
    parser.add_argument("--port", type=int, default=8401, help="where to serve them [8401]")
    given = parser.parse_args()
    if given.serve:
        address = f"127.0.0.1:{given.port}"
        os.chdir(ROOT)
        os.execv(ZENSICAL, [str(ZENSICAL), "serve", "--dev-addr", address])
    code = built(ROOT)
    if code == 0:
        print(f"built: {ROOT / 'site' / 'index.html'} (search works with ./dev docs --serve)")
    return code


if __name__ == "__main__":
    sys.exit(main())
