"""What the bash tool runs at all, how long it may, and how much of its output the model sees."""

from msgspec import Struct
from msgspec.structs import force_setattr

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_integer, check_seconds, check_texts

DENIED = (
    *("rm -rf / ", "rm -rf /*", "rm -fr / ", "rm -fr /*", "--no-preserve-root"),
    *(":(){", "mkfs.", "of=/dev/sd", "> /dev/sd"),
)
"""Commands that nobody means. A net for accidents; what holds back an attacker is the sandbox."""


class BashPolicy(Struct, frozen=True, kw_only=True):
    """How the bash tool treats commands and their output.

    Of each of the two outputs (stdout and stderr) the model sees at most ``max_output_chars``. Of
    a longer one it sees the first ``head_chars`` and the last ``tail_chars``, by default as many as
    ``head_chars`` leaves.

    >>> BashPolicy(denied=("git push",)).denied_in("git  push --force")
    'git push'
    >>> BashPolicy(max_output_chars=100_000).shown_tail
    92000
    """

    max_output_chars: int = 50_000
    head_chars: int = 8_000
    tail_chars: int | None = None
    """None means what ``head_chars`` leaves of ``max_output_chars``."""
    denied: tuple[str, ...] = DENIED
    """A command that contains one of these is refused. Runs of blanks count as one."""
    max_timeout: float | None = None
    """The most seconds the model can ask for; None means the timeout of the execution policy."""

    def __post_init__(self) -> None:
        check_integer(self.max_output_chars, "max_output_chars", least=1)
        check_integer(self.head_chars, "head_chars", least=0)
        if self.tail_chars is not None:
            check_integer(self.tail_chars, "tail_chars", least=0)
        sampled = self.head_chars + max(self.shown_tail, 0)
        if not 0 < sampled <= self.max_output_chars:
            head = self.max_output_chars // 5
            raise ConfigurationError(
                f"head_chars and tail_chars make {sampled}, and must make between 1 and "
                f"max_output_chars; write BashPolicy(max_output_chars={self.max_output_chars}, "
                f"head_chars={head})"
            )
        force_setattr(self, "denied", check_texts(self.denied, "denied"))
        if not all(self.denied):
            raise ConfigurationError(
                f"denied wants texts that are not empty, got {self.denied!r:.80}; an empty one "
                "is part of every command"
            )
        if self.max_timeout is not None:
            check_seconds(self.max_timeout, "max_timeout")

    @property
    def shown_tail(self) -> int:
        """How many of the last characters the model sees of a long output."""
        rest = self.max_output_chars - self.head_chars
        return rest if self.tail_chars is None else self.tail_chars

    def denied_in(self, command: str) -> str | None:
        """The first denied text that the command contains, or None."""
        # A blank at the end, so that "rm -rf / " is found there and "rm -rf /tmp/x" is not.
        in_one_line = f"{' '.join(command.split())} "
        return next((text for text in self.denied if text in command or text in in_one_line), None)
