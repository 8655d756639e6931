"""Names of files and directories that no tool may write unless the developer allows it, because
other programs execute them or take commands from them. Pure functions.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from stepwell.errors import ConfigurationError

PROTECTED_NAMES = (
    *(".venv", "venv", "*.pth", "sitecustomize.py", "usercustomize.py", "conftest.py"),
    *(".git/hooks", ".git/config", ".git/modules", ".husky", "node_modules/.bin"),
    *(".vscode", ".idea", "stepwell.toml", "stepwell.db*"),
)
"""Names that interpreters, Git, test runners and editors execute or take commands from, and what
the app server trusts: its settings, database and secret."""


HIDDEN_NAMES = ("stepwell.toml", "stepwell.db*")
"""Files that only the app server reads: its settings and the conversations of all its users."""


def protected_name(names: Sequence[str], patterns: Iterable[str]) -> str | None:
    """Return the pattern that protects a path, at any depth and case-insensitively, or None.

    The names of a directory end with an empty one. A file in place of a directory of a pattern
    counts as well: a ``.git`` file tells Git where its settings are.

    >>> protected_name(["sub", ".git", "hooks", "pre-commit"], PROTECTED_NAMES)
    '.git/hooks'
    >>> protected_name(["app", ".git"], PROTECTED_NAMES), protected_name(["app.py"], ["*.pth"])
    ('.git/hooks', None)
    >>> protected_name([".git", ""], PROTECTED_NAMES), protected_name([".GIT", "hooks"], [".git/*"])
    (None, '.git/*')
    """
    folded = [name.casefold() for name in names]
    for pattern in patterns:
        parts = pattern.casefold().split("/")
        for start in range(len(folded)):
            if all(map(fnmatchcase, folded[start:], parts)):
                return pattern
    return None


def check_names(patterns: Iterable[str], part: str = "protected") -> tuple[str, ...]:
    """Return the patterns as a tuple. Raises ``ConfigurationError`` for an invalid one."""
    if isinstance(patterns, str):
        raise ConfigurationError(f"{part} must be a list of names; write {part}=[{patterns!r}]")
    names = tuple(patterns)
    for name in names:
        if not isinstance(name, str) or any(  # pyright: ignore[reportUnnecessaryIsInstance]
            p in ("", ".", "..") for p in name.split("/")
        ):
            raise ConfigurationError(
                f"{part} has {name!r}, which is not a relative path such as '.git/hooks'; leave "
                "out '..' and slashes at either end"
            )
    return names
