"""Names of files and directories that no tool may write unless the developer says so: what other
programs of the developer execute, or take commands from. Only pure functions.
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
the app server believes: its settings, database and secret."""


HIDDEN_NAMES = ("stepwell.toml", "stepwell.db*")
"""What only the app server reads: its settings, and the conversations of all its users."""


def protected_name(names: Sequence[str], patterns: Iterable[str]) -> str | None:
    """The pattern that protects a path, given by its names, at any depth. Case does not matter.

    The names of a directory end with an empty one. A file in the place of a directory that a
    pattern leads through counts as well: a ``.git`` file tells Git where its settings are.

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
    """The patterns as a tuple. Raises ``ConfigurationError`` for what is none."""
    if isinstance(patterns, str):
        raise ConfigurationError(f"{part} is a list of names; write {part}=[{patterns!r}]")
    names = tuple(patterns)
    for name in names:
        if not isinstance(name, str) or any(  # pyright: ignore[reportUnnecessaryIsInstance]
            p in ("", ".", "..") for p in name.split("/")
        ):
            raise ConfigurationError(
                f"{part} has {name!r}, which is no relative path such as '.git/hooks'; leave "
                "out '..' and slashes at either end"
            )
    return names
