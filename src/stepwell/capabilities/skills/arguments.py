"""The placeholders of a skill's text, filled with the arguments that the skill was given.

Text takes the arguments as they are. Commands never do: theirs are handed to the shell as
parameters and variables, which it does not read as commands.
"""

import re
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from msgspec import Struct

from stepwell.agent.front_matter import DefinitionError

MAX_ARGUMENTS = 10_000
"""Characters of the arguments of one skill."""

MAX_FILLED = 1_000_000
"""Characters that filling its placeholders may add to one skill."""

_PLACEHOLDER = re.compile(
    r"(?<!\\)(?:"
    r"\$ARGUMENTS\[(?P<index>\d{1,3})\]"
    r"|(?P<all>\$ARGUMENTS(?![A-Za-z0-9_])|\$\{ARGUMENTS\})"
    r"|\$(?P<position>\d)(?!\w|[.,]\d)"
    r"|(?P<directory>\$\{(?:[A-Z]+_)?SKILL_DIR\}|\$(?:[A-Z]+_)?SKILL_DIR\b|\{baseDir\})"
    r")"
)

_CODE = re.compile(r"^ {0,3}(?P<fence>```|~~~).*$|`[^`\n]+`", re.MULTILINE)


class SkillArguments(Struct, frozen=True, kw_only=True):
    """What a skill was given: the text, its words, and the skill's directory.

    ``$ARGUMENTS`` is the whole text, ``$ARGUMENTS[0]`` and ``$1`` are its first word. In a skill
    that uses ``$0``, that is the first word. A position that was not given becomes an empty string;
    in code it stays as it is written, since ``awk '{print $1}'`` means its own.

    >>> given = SkillArguments.of("12 'by Friday'", directory="/skills/fix")
    >>> given.filled("Fix issue $1 $2, see ${CLAUDE_SKILL_DIR}/notes.md")
    'Fix issue 12 by Friday, see /skills/fix/notes.md'
    """

    text: str | None = None
    words: tuple[str, ...] = ()
    directory: str | None = None
    counts_from_zero: bool = False

    @classmethod
    def of(cls, text: str | None, *, directory: str | None, body: str = "") -> "SkillArguments":
        """The arguments for a skill with that body; raises ``DefinitionError``."""
        text = None if text is None or not text.strip() else text.strip()
        if text is not None:
            _refuse_odd(text)
        from_zero = any(found["position"] == "0" for found in _PLACEHOLDER.finditer(body))
        words = () if text is None else _words(text)
        return cls(text=text, words=words, directory=directory, counts_from_zero=from_zero)

    def filled(self, text: str) -> str:
        """The text with its placeholders filled; raises ``DefinitionError`` if it gets too long."""
        return self.filled_all([text])[0]

    def filled_all(self, texts: Iterable[str]) -> list[str]:
        """The pieces of one skill with their placeholders filled, bounded together."""
        added = 0
        edges: list[int] = []

        def value(found: "re.Match[str]") -> str:
            nonlocal added
            text = self._value(found)
            if text is None:
                text = found[0] if _is_in_code(found, edges) else ""
            added += len(text)
            if added > MAX_FILLED:
                raise DefinitionError(
                    f"the skill grows by more than {MAX_FILLED:,} characters with its arguments; "
                    "give shorter ones"
                )
            return text

        filled: list[str] = []
        for text in texts:
            edges = _code_edges(text)
            filled.append(_PLACEHOLDER.sub(value, text))
        return filled

    def as_shell(self, command: str) -> str:
        """The command with placeholders that the shell expands by itself."""
        return _PLACEHOLDER.sub(self._as_parameter, command)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that go with ``as_shell``."""
        places = {} if self.directory is None else {"SKILL_DIR": self.directory}
        return {"ARGUMENTS": self.text or "", **places}

    def _value(self, found: "re.Match[str]") -> str | None:
        """What a placeholder stands for; None for a position that was not given."""
        if found["all"]:
            return self.text or ""
        if found["directory"]:
            return found[0] if self.directory is None else self.directory
        if found["index"]:
            at = int(found["index"])
            return self.words[at] if at < len(self.words) else ""
        at = int(found["position"]) - (not self.counts_from_zero)
        return self.words[at] if 0 <= at < len(self.words) else None

    def _as_parameter(self, found: "re.Match[str]") -> str:
        if found["all"]:
            return "${ARGUMENTS}"
        if found["directory"]:
            return "${SKILL_DIR}"
        if found["index"]:
            return f"${{{int(found['index']) + 1}}}"
        # The shell's own `$1` stays: in quotes it may belong to awk.
        return f"${{{int(found['position']) + 1}}}" if self.counts_from_zero else found[0]


def has_argument_placeholder(text: str) -> bool:
    """Whether a text says where its arguments go."""
    return any(not found["directory"] for found in _PLACEHOLDER.finditer(text))


def _code_edges(text: str) -> list[int]:
    """Where code begins and ends in a Markdown text, by turns.

    >>> _code_edges("Run `a` now")
    [4, 7]
    """
    edges: list[int] = []
    for found in _CODE.finditer(text):
        is_open = len(edges) % 2 == 1
        if found["fence"]:
            edges.append(found.end() if is_open else found.start())
        elif not is_open:
            edges += found.span()
    return edges


def _is_in_code(found: "re.Match[str]", edges: list[int]) -> bool:
    return bisect_right(edges, found.start()) % 2 == 1


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an apostrophe, not a quote
        return tuple(text.split())


def _refuse_odd(text: str) -> None:
    if len(text) > MAX_ARGUMENTS:
        raise DefinitionError(
            f"the arguments have {len(text):,} characters, and {MAX_ARGUMENTS:,} is the most"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DefinitionError("the arguments hold half of a character") from None
    if "\0" in text:
        raise DefinitionError("the arguments hold a NUL character")
