"""All of these tests once more, as a user without any rights: other mechanisms hold then."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TESTS = {
    "test_bubblewrap.py": "",
    "test_cgroups.py": "",
    "test_processes.py": "bubblewrap and not (flood or silence or memory or many_at_once)",
    "test_proof.py": "",
    "test_unconfined.py": "",
}
"""Which tests, and which of them: the slow ones that do not depend on the user are left out."""

ENTER = r"""
set -e
mount --make-rprivate /
if [ "$1" ]; then
    mount --bind "$2" "$3"
    mount -t tmpfs -o mode=755 open "$1"
    mkdir -p "$2"
    mount --move "$3" "$2"
fi
shift 3
exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"
"""
"""This Python may lie where only root may look, such as in root's home: there a new mount opens the
way to it, in a namespace of its own."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place that belongs to nobody."""
    made = Path(tempfile.mkdtemp(prefix="nobodys-"))
    os.chown(made, NOBODY, NOBODY)
    (made / "python").mkdir()
    yield made
    shutil.rmtree(made)


def closed_to_others(path: Path) -> str:
    """The first folder on the way to it that others can't enter, or nothing."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return str(folder)
    return ""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_setpriv = pytest.mark.skipif(not shutil.which("setpriv"), reason="there is no setpriv")


def run_as_normal_user(tests: Path, folder: Path, keyword: str = "") -> None:
    """Run tests as nobody, with temporary files in that folder, and see them pass."""
    python = Path(sys.base_prefix).resolve()
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={folder}/tests", "-x", "-k", keyword]
    command = [sys.executable, "-B", "-m", "pytest", *options, str(tests)]
    entered = ["sh", "-c", ENTER, "sh", closed_to_others(python), str(python), f"{folder}/python"]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)}
    result = subprocess.run(
        ["unshare", "--mount", *entered, *command],
        cwd=ROOT,
        env=environment | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


@needs_root
@needs_setpriv
@pytest.mark.parametrize("tests", TESTS)
def test_it_holds_for_a_normal_user(tests: str, folder: Path) -> None:
    run_as_normal_user(HERE / tests, folder, TESTS[tests])
