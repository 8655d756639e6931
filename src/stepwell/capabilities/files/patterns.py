"""The pattern language of ``search_files``: globs, paths and pieces of a path. Touches no disk."""

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from itertools import pairwise

from stepwell.capabilities.files.opening import names_of
from stepwell.capabilities.files.refusals import FileRefused, shortened

MAX_PATTERN = 500
MAX_ALTERNATIVES = 64
ANY_DEPTH = "**"
_MAGIC = re.compile(r"[*?\[{]")


class PathPattern:
    """Which files a search is for. Globs and paths are anchored at the base directory.

    - A glob (it has ``*``, ``?``, ``[`` or ``{``) is matched with the whole path: ``*.py`` means
      files of the base directory itself, ``**/*.py`` files at any depth.
    - A path (it has a ``/``, or is ``.``) means that file, or all files beneath that directory.
    - Any other text is a piece of the path, in any case, at any depth.

    >>> PathPattern("src/**/*.{ts,tsx}").matches(("src", "ui", "page.tsx"))
    True
    >>> [PathPattern(p).matches(("src", "main.py")) for p in ("*.py", "**/*.py", "./main.py")]
    [False, True, False]
    >>> PathPattern("./src").matches(("src", "main.py")), PathPattern("MAIN").matches(("main.py",))
    (True, True)
    """

    def __init__(self, pattern: str) -> None:
        if not pattern.strip("/"):
            raise FileRefused("the pattern is empty; write for example '**/*.py' or a name")
        if "\0" in pattern:
            raise FileRefused("the pattern has a NUL byte in it; no file is named so")
        if len(pattern) > MAX_PATTERN:
            raise FileRefused(f"the pattern is longer than {MAX_PATTERN} characters")
        choices = alternatives(pattern)
        if any(".." in names_of(choice) for choice in choices):
            raise FileRefused(
                f"the pattern {shortened(pattern)!r} has '..' in it; a search goes down from the "
                "base directory only"
            )
        is_glob = _MAGIC.search(pattern) is not None
        is_piece = not is_glob and "/" not in pattern and pattern != "."
        self._piece = pattern.casefold() if is_piece else None
        self._alternatives = [_names(choice) for choice in choices]
        if not is_glob:  # a directory stands for the files beneath it
            self._alternatives += [(*names, ANY_DEPTH, "*") for names in self._alternatives]
        self.wider = _wider(pattern, is_glob=is_glob) if self._piece is None else ()
        """Patterns that look for the same at any depth."""
        self._named = {name for names in self._alternatives for name in names}
        matchers = {name: _matcher(name) for name in self._named}
        self._matchers = [[matchers[name] for name in names] for names in self._alternatives]

    def names(self, directory: str) -> bool:
        """Whether the pattern names this directory, letter by letter."""
        return directory in self._named

    def matches(self, path: Sequence[str]) -> bool:
        """Whether a file with this path is searched for."""
        if self._piece is not None:
            return self._piece in "/".join(path).casefold()
        return any(len(path) in ends for ends in self._reached(path))

    def may_match_beneath(self, path: Sequence[str]) -> bool:
        """Whether a directory with this path can hold such a file."""
        return self._piece is not None or any(self._reached_open(path))

    def _reached(self, path: Sequence[str]) -> "list[set[int]]":
        """Per alternative, how many names of the path the whole alternative can take up."""
        found: list[set[int]] = []
        for names, matchers in zip(self._alternatives, self._matchers, strict=True):
            ends = {0}
            for name, matcher in zip(names, matchers, strict=True):
                ends = _after(ends, name, matcher, path)
                if not ends:
                    break
            found.append(ends)
        return found

    def _reached_open(self, path: Sequence[str]) -> "list[bool]":
        """Per alternative, whether it can take up the whole path and still go on."""
        found: list[bool] = []
        for names, matchers in zip(self._alternatives, self._matchers, strict=True):
            ends = {0}
            goes_on = False
            for name, matcher in zip(names, matchers, strict=True):
                goes_on = len(path) in ends or name == ANY_DEPTH
                ends = _after(ends, name, matcher, path)
                if goes_on or not ends:
                    break
            found.append(goes_on)
        return found


Matcher = Callable[[str], object]


def _after(ends: set[int], name: str, matcher: Matcher, path: Sequence[str]) -> set[int]:
    """Where one more name of a pattern leads from each of these places in a path."""
    if name == ANY_DEPTH:
        return set(range(min(ends), len(path) + 1)) if ends else ends
    return {end + 1 for end in ends if end < len(path) and matcher(path[end])}


def _matcher(name: str) -> Matcher:
    """Of one name. Brackets in the names of real files are matched as they are written, too."""
    glob = re.compile(translate(name)).match
    return lambda found: found == name or glob(found)


def _names(alternative: str) -> tuple[str, ...]:
    names = names_of(alternative)
    if names and names[-1] == ANY_DEPTH:
        names = (*names, "*")  # the files beneath, at any depth
    return names


def _wider(pattern: str, *, is_glob: bool) -> tuple[str, ...]:
    """What may have been meant by a glob or path that matched nothing.

    >>> _wider("./*.py", is_glob=True), _wider("ui/page", is_glob=False)
    (('**/*.py',), ('**/ui/page*', '**/ui/page/**'))
    """
    anywhere = "/".join((ANY_DEPTH, *names_of(pattern)))
    if pattern.startswith(ANY_DEPTH) or len(anywhere) > MAX_PATTERN - len("/**"):
        return ()
    return (anywhere,) if is_glob else (f"{anywhere}*", f"{anywhere}/**")


def alternatives(pattern: str) -> list[str]:
    """A pattern for every choice in braces.

    >>> alternatives("{src,test{s,}}/*.py")
    ['src/*.py', 'tests/*.py', 'test/*.py']
    """
    found: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        group = _first_group(text)
        if group is None:
            found.append(text)
        else:
            start, choices, end = group
            waiting.extend(text[:start] + choice + text[end:] for choice in reversed(choices))
        if len(found) + len(waiting) > MAX_ALTERNATIVES:
            raise FileRefused(
                f"the pattern {shortened(pattern)!r} has more than {MAX_ALTERNATIVES} alternatives"
            )
    return found


def _first_group(text: str) -> tuple[int, list[str], int] | None:
    """Start, choices and end of the first braces that have a comma of their own."""
    for start, character in enumerate(text):
        if character != "{":
            continue
        depth, commas = 0, [start]
        for at in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if text[at] == "," and depth == 1:
                commas.append(at)
            if depth == 0:
                cuts = [*commas, at]
                choices = [text[a + 1 : b] for a, b in pairwise(cuts)]
                if len(choices) > 1:
                    return start, choices, at + 1
                break
    return None
