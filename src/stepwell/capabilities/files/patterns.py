"""The pattern language of ``search_files``: globs, paths and path fragments. Touches no disk."""

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from itertools import pairwise

from stepwell.capabilities.files.openat import names_of
from stepwell.capabilities.files.refusals import FileRefused, quote

MAX_PATTERN = 500
MAX_ALTERNATIVES = 64
ANY_DEPTH = "**"
_MAGIC = re.compile(r"[*?\[{]")


class PathPattern:
    """Decides which files a search finds. Globs and paths start at the base directory.

    - A glob (has ``*``, ``?``, ``[`` or ``{``) must match the whole path: ``*.py`` matches files
      directly in the base directory, ``**/*.py`` files at any depth.
    - A path (has a ``/``, or is ``.``) matches that file, or all files beneath that directory.
    - Any other text matches as part of a path, case-insensitively, at any depth.

    >>> PathPattern("src/**/*.{ts,tsx}").matches(("src", "ui", "page.tsx"))
    True
    >>> [PathPattern(p).matches(("src", "main.py")) for p in ("*.py", "**/*.py", "./main.py")]
    [False, True, False]
    >>> PathPattern("./src").matches(("src", "main.py")), PathPattern("MAIN").matches(("main.py",))
    (True, True)
    """

    def __init__(self, pattern: str) -> None:
        if not pattern.strip("/"):
            raise FileRefused("the pattern is empty; use for example '**/*.py' or a name")
        if "\0" in pattern:
            raise FileRefused("the pattern contains a NUL byte, which no file name can have")
        if len(pattern) > MAX_PATTERN:
            raise FileRefused(f"the pattern is longer than {MAX_PATTERN} characters")
        choices = alternatives(pattern)
        if any(".." in names_of(choice) for choice in choices):
            raise FileRefused(
                f"the pattern {quote(pattern)} contains '..'; a search only goes down "
                "from the base directory"
            )
        is_glob = _MAGIC.search(pattern) is not None
        is_fragment = not is_glob and "/" not in pattern and pattern != "."
        self._fragment = pattern.casefold() if is_fragment else None
        self._alternatives = [_names(choice) for choice in choices]
        if not is_glob:  # a directory matches the files beneath it
            self._alternatives += [(*names, ANY_DEPTH, "*") for names in self._alternatives]
        self.broader = _broader(pattern, is_glob=is_glob) if self._fragment is None else ()
        """Patterns that match the same at any depth."""
        self._named = {name for names in self._alternatives for name in names}
        matchers = {name: _matcher(name) for name in self._named}
        self._matchers = [[matchers[name] for name in names] for names in self._alternatives]

    def names(self, directory: str) -> bool:
        """Return whether the pattern contains this directory's name literally."""
        return directory in self._named

    def matches(self, path: Sequence[str]) -> bool:
        """Return whether the pattern matches a file with this path."""
        if self._fragment is not None:
            return self._fragment in "/".join(path).casefold()
        return any(len(path) in ends for ends in self._match_ends(path))

    def may_match_beneath(self, path: Sequence[str]) -> bool:
        """Return whether a directory with this path can contain a matching file."""
        return self._fragment is not None or any(self._can_extend(path))

    def _match_ends(self, path: Sequence[str]) -> "list[set[int]]":
        """Return per alternative how many names of the path it can consume in full."""
        found: list[set[int]] = []
        for names, matchers in zip(self._alternatives, self._matchers, strict=True):
            ends = {0}
            for name, matcher in zip(names, matchers, strict=True):
                ends = _advance(ends, name, matcher, path)
                if not ends:
                    break
            found.append(ends)
        return found

    def _can_extend(self, path: Sequence[str]) -> "list[bool]":
        """Return per alternative whether it can consume the whole path and more."""
        found: list[bool] = []
        for names, matchers in zip(self._alternatives, self._matchers, strict=True):
            ends = {0}
            can_extend = False
            for name, matcher in zip(names, matchers, strict=True):
                can_extend = len(path) in ends or name == ANY_DEPTH
                ends = _advance(ends, name, matcher, path)
                if can_extend or not ends:
                    break
            found.append(can_extend)
        return found


Matcher = Callable[[str], object]


def _advance(ends: set[int], name: str, matcher: Matcher, path: Sequence[str]) -> set[int]:
    """Consume one more name of a pattern from each of these positions in a path."""
    if name == ANY_DEPTH:
        return set(range(min(ends), len(path) + 1)) if ends else ends
    return {end + 1 for end in ends if end < len(path) and matcher(path[end])}


def _matcher(name: str) -> Matcher:
    """Compile one name. Brackets also match literally, because real file names contain them."""
    glob = re.compile(translate(name)).match
    return lambda found: found == name or glob(found)


def _names(alternative: str) -> tuple[str, ...]:
    names = names_of(alternative)
    if names and names[-1] == ANY_DEPTH:
        names = (*names, "*")  # the files beneath, at any depth
    return names


def _broader(pattern: str, *, is_glob: bool) -> tuple[str, ...]:
    """Suggest patterns for a glob or path that matched nothing.

    >>> _broader("./*.py", is_glob=True), _broader("ui/page", is_glob=False)
    (('**/*.py',), ('**/ui/page*', '**/ui/page/**'))
    """
    anywhere = "/".join((ANY_DEPTH, *names_of(pattern)))
    if pattern.startswith(ANY_DEPTH) or len(anywhere) > MAX_PATTERN - len("/**"):
        return ()
    return (anywhere,) if is_glob else (f"{anywhere}*", f"{anywhere}/**")


def alternatives(pattern: str) -> list[str]:
    """Expand braces into one pattern per choice.

    >>> alternatives("{src,test{s,}}/*.py")
    ['src/*.py', 'tests/*.py', 'test/*.py']
    """
    found: list[str] = []
    queue = [pattern]
    while queue:
        text = queue.pop()
        group = _first_group(text)
        if group is None:
            found.append(text)
        else:
            start, choices, end = group
            queue.extend(text[:start] + choice + text[end:] for choice in reversed(choices))
        if len(found) + len(queue) > MAX_ALTERNATIVES:
            raise FileRefused(
                f"the pattern {quote(pattern)} has more than {MAX_ALTERNATIVES} alternatives"
            )
    return found


def _first_group(text: str) -> tuple[int, list[str], int] | None:
    """Find the first braces with a comma of their own; return start, choices and end."""
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
