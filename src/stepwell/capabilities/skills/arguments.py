"""Fills the placeholders in a skill's text with its arguments.

Arguments are inserted into text directly, but never into commands: the shell gets them as
parameters and variables, which it does not parse as commands.
"""

import re
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from msgspec import Struct

from stepwell.specs.front_matter import DefinitionError
from stepwell.text import HALF_CHARACTER, is_encodable

MAX_ARGUMENTS = 10_000
"""Limit of the arguments of one skill, in characters."""

MAX_FILLED = 1_000_000
"""Limit of the characters that filled placeholders may add to one skill."""

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
    """The arguments of a skill: the text, its words, and the skill's directory.

    ``$ARGUMENTS`` is the whole text, ``$ARGUMENTS[0]`` and ``$1`` are its first word. In a skill
    that uses ``$0``, that is the first word. A missing position becomes an empty string, but in
    code it stays as written, because ``awk '{print $1}'`` has its own ``$1``.

    >>> given = SkillArguments.of("12 'by Friday'", shown_directory="skills/fix")
    >>> given.fill("Fix issue $1 $2, see ${CLAUDE_SKILL_DIR}/notes.md")
    'Fix issue 12 by Friday, see skills/fix/notes.md'
    """

    text: str | None = None
    words: tuple[str, ...] = ()
    directory: str | None = None
    """Where commands find it; texts for the model name ``shown_directory``."""
    shown_directory: str | None = None
    counts_from_zero: bool = False

    @classmethod
    def of(
        cls,
        text: str | None,
        *,
        directory: str | None = None,
        shown_directory: str | None = None,
        body: str = "",
    ) -> "SkillArguments":
        """Make the arguments for a skill with that body. Raises ``DefinitionError``."""
        text = None if text is None or not text.strip() else text.strip()
        if text is not None:
            _check_text(text)
        from_zero = any(found["position"] == "0" for found in _PLACEHOLDER.finditer(body))
        words = () if text is None else _split_words(text)
        return cls(
            text=text,
            words=words,
            directory=directory,
            shown_directory=shown_directory,
            counts_from_zero=from_zero,
        )

    def fill(self, text: str) -> str:
        """Fill the placeholders in a text. Raises ``DefinitionError`` if it gets too long."""
        return self.fill_all([text])[0]

    def fill_all(self, texts: Iterable[str]) -> list[str]:
        """Fill the placeholders in the pieces of one skill, with one length limit for all."""
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
                    f"the arguments make the skill longer by more than {MAX_FILLED:,} characters; "
                    "pass shorter ones"
                )
            return text

        fill: list[str] = []
        for text in texts:
            edges = _code_edges(text)
            fill.append(_PLACEHOLDER.sub(value, text))
        return fill

    def shell_command(self, command: str) -> str:
        """Return the command with placeholders that the shell expands itself."""
        return _PLACEHOLDER.sub(self._shell_parameter, command)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables for ``shell_command``."""
        places = {} if self.directory is None else {"SKILL_DIR": self.directory}
        return {"ARGUMENTS": self.text or "", **places}

    def _value(self, found: "re.Match[str]") -> str | None:
        """Return the value of a placeholder; None for a missing position."""
        if found["all"]:
            return self.text or ""
        if found["directory"]:
            return found[0] if self.shown_directory is None else self.shown_directory
        if found["index"]:
            at = int(found["index"])
            return self.words[at] if at < len(self.words) else ""
        at = int(found["position"]) - (not self.counts_from_zero)
        return self.words[at] if 0 <= at < len(self.words) else None

    def _shell_parameter(self, found: "re.Match[str]") -> str:
        if found["all"]:
            return "${ARGUMENTS}"
        if found["directory"]:
            return "${SKILL_DIR}"
        if found["index"]:
            return f"${{{int(found['index']) + 1}}}"
        # The shell's own `$1` stays: inside quotes it may be meant for awk.
        return f"${{{int(found['position']) + 1}}}" if self.counts_from_zero else found[0]


def has_argument_placeholder(text: str) -> bool:
    """Return whether a text has a placeholder for arguments."""
    return any(not found["directory"] for found in _PLACEHOLDER.finditer(text))


def _code_edges(text: str) -> list[int]:
    """Return the start and end offsets of code in a Markdown text, alternating.

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


def _split_words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an apostrophe, not a quote
        return tuple(text.split())


def _check_text(text: str) -> None:
    if len(text) > MAX_ARGUMENTS:
        raise DefinitionError(
            f"the arguments have {len(text):,} characters, and the limit is {MAX_ARGUMENTS:,}"
        )
    if not is_encodable(text):
        raise DefinitionError(f"the arguments contain {HALF_CHARACTER}")
    if "\0" in text:
        raise DefinitionError("the arguments contain a NUL character")
