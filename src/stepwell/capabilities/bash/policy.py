"""The limits of the bash tool: refused commands, timeout, and how much output the model sees."""

from msgspec import Struct
from msgspec.structs import force_setattr

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_integer, check_seconds, check_texts

DENIED = (
    *("rm -rf / ", "rm -rf /*", "rm -fr / ", "rm -fr /*", "--no-preserve-root"),
    *(":(){", "mkfs.", "of=/dev/sd", "> /dev/sd"),
)
"""Commands that are always mistakes. A safety net only; the sandbox is what stops an attacker."""


class BashPolicy(Struct, frozen=True, kw_only=True):
    """How the bash tool handles commands and their output.

    The model sees at most ``max_output_chars`` of stdout and of stderr. Of a longer output it sees
    the first ``head_chars`` and the last ``tail_chars``, by default all that ``head_chars`` leaves.

    >>> BashPolicy(denied=("git push",)).denied_in("git  push --force")
    'git push'
    >>> BashPolicy(max_output_chars=100_000).shown_tail
    92000
    """

    max_output_chars: int = 50_000
    head_chars: int = 8_000
    tail_chars: int | None = None
    """None means ``max_output_chars`` minus ``head_chars``."""
    denied: tuple[str, ...] = DENIED
    """A command that contains one of these texts is refused. Runs of whitespace count as one."""
    max_timeout: float | None = None
    """The longest timeout the model can request; None means that of the execution policy."""

    def __post_init__(self) -> None:
        check_integer(self.max_output_chars, "max_output_chars", least=1)
        check_integer(self.head_chars, "head_chars", least=0)
        if self.tail_chars is not None:
            check_integer(self.tail_chars, "tail_chars", least=0)
        sampled = self.head_chars + max(self.shown_tail, 0)
        if not 0 < sampled <= self.max_output_chars:
            head = self.max_output_chars // 5
            raise ConfigurationError(
                f"head_chars and tail_chars add up to {sampled}, but must be between 1 and "
                f"max_output_chars. Write BashPolicy(max_output_chars={self.max_output_chars}, "
                f"head_chars={head})"
            )
        force_setattr(self, "denied", check_texts(self.denied, "denied"))
        if not all(self.denied):
            raise ConfigurationError(
                f"denied must not contain empty texts, got {self.denied!r:.80}; every command "
                "contains an empty text"
            )
        if self.max_timeout is not None:
            check_seconds(self.max_timeout, "max_timeout")

    @property
    def shown_tail(self) -> int:
        """How many characters of the end of a long output the model sees."""
        rest = self.max_output_chars - self.head_chars
        return rest if self.tail_chars is None else self.tail_chars

    def denied_in(self, command: str) -> str | None:
        """Return the first denied text that the command contains, or None."""
        # The trailing space makes "rm -rf / " match at the end, but not "rm -rf /tmp/x".
        in_one_line = f"{' '.join(command.split())} "
        return next((text for text in self.denied if text in command or text in in_one_line), None)
