"""The source of stepwell as the architecture tests read it: each file once per process."""

import ast
from functools import cache
from pathlib import Path

import stepwell

SOURCE = Path(stepwell.__file__).parent


@cache
def texts() -> dict[str, str]:
    """The text of each file, by its path below `src/stepwell`."""
    return {
        path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each file."""
    return {file: ast.parse(text) for file, text in texts().items()}
