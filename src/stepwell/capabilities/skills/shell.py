"""Commands within a skill's text, replaced by what they say. Only when the host asked for it, and
always in a sandbox.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from stepwell.capabilities.skills.arguments import SkillArguments
from stepwell.errors import ConfigurationError, SandboxError
from stepwell.sandbox import Ending, ExecutionPolicy, Sandbox, SandboxResult, given_or_default

_MARK = re.compile(r"(?<!\S)!`([^`\n]+)`|^```![ \t]*\n", re.MULTILINE)
_END_OF_BLOCK = re.compile(r"^```[ \t]*$", re.MULTILINE)

LEAST_SECONDS = 0.001


class ShellPreprocessing(Struct, frozen=True, kw_only=True, eq=False):
    """Has the commands in skills run, each under this policy, where they are marked with !`...`.

    They begin in the policy's directory and may also read the skill's. Without a ``sandbox`` the
    best one of this machine is taken. Arguments of the skill reach a command as ``$1`` and
    ``$ARGUMENTS`` of the shell, never as part of the command's text.

    >>> ShellPreprocessing(policy=ExecutionPolicy(directory=Path("/project"))).max_commands
    20
    """

    policy: ExecutionPolicy
    sandbox: Sandbox | None = None
    max_output_chars: int = 10_000
    """Characters kept of what one command says."""
    max_commands: int = 20
    """Commands run for one skill; those behind them are not run."""

    def __post_init__(self) -> None:
        if not isinstance(self.policy, ExecutionPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"policy is {self.policy!r:.80}; write policy=ExecutionPolicy.in_(directory)"
            )
        given_or_default(self.sandbox)
        for name in ("max_output_chars", "max_commands"):
            amount = getattr(self, name)
            if type(amount) is not int or amount < 1:
                raise ConfigurationError(f"{name} must be 1 or more, got {amount!r}")


class MarkedCommand(Struct, frozen=True):
    """A command in a text, with the place of its mark."""

    command: str
    start: int
    end: int


def marked_commands(text: str) -> Iterator[MarkedCommand]:
    """The commands marked as !`...`, and the fenced blocks that begin with an exclamation mark.

    >>> [found.command for found in marked_commands("Now: !`git status`, `!ls`")]
    ['git status']
    """
    at, has_blocks = 0, True
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        if mark[1] is not None:
            yield MarkedCommand(mark[1], mark.start(), at)
        elif has_blocks:
            close = _END_OF_BLOCK.search(text, at)
            if close is None:
                has_blocks = False
            else:
                begin, at = at, close.end()
                yield MarkedCommand(text[begin : close.start()].strip("\n"), mark.start(), at)


def texts_between(text: str, commands: Sequence[MarkedCommand]) -> list[str]:
    """The pieces of the text before, between and behind its commands."""
    starts = [0, *(found.end for found in commands)]
    ends = [*(found.start for found in commands), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


class CommandRunner:
    """Runs the marked commands of skills."""

    def __init__(self, settings: ShellPreprocessing) -> None:
        self._settings = settings
        self._sandbox = given_or_default(settings.sandbox)

    async def filled(
        self, body: str, arguments: SkillArguments, *, seconds_left: float | None
    ) -> str:
        """The body with its placeholders filled and its commands replaced by their output."""
        commands = tuple(marked_commands(body))
        first, *others = arguments.filled_all(texts_between(body, commands))
        pieces = [first]
        most = self._settings.max_commands
        for count, (found, text) in enumerate(zip(commands, others, strict=True), start=1):
            if count > most:
                said = f"[not run, a skill may run {most} commands: `{found.command}`]"
            else:
                said = await self._said(found.command, arguments, seconds_left)
            pieces += (said, text)
        return "".join(pieces)

    async def _said(
        self, command: str, arguments: SkillArguments, seconds_left: float | None
    ) -> str:
        policy = self._policy(arguments, seconds_left)
        argv = ["bash", "-c", arguments.as_shell(command), "skill", *arguments.words]
        try:
            result = await self._sandbox.run(argv, policy)
        except SandboxError as error:
            return f"[`{command}` was not run: {error}]"
        return self._shown(command, result, policy)

    def _policy(self, arguments: SkillArguments, seconds_left: float | None) -> ExecutionPolicy:
        policy = self._settings.policy
        timeouts = [s for s in (policy.timeout, seconds_left) if s is not None]
        readable = policy.readable
        if arguments.directory is not None:
            readable = (*readable, Path(arguments.directory).resolve())
        return replace(
            policy,
            timeout=max(min(timeouts), LEAST_SECONDS) if timeouts else None,
            environment={**policy.environment, **arguments.environment},
            readable=readable,
        )

    def _shown(self, command: str, result: SandboxResult, policy: ExecutionPolicy) -> str:
        said = self._cut(result.stdout.rstrip("\n"))
        if result.ending is Ending.EXITED and result.exit_code == 0 and not result.out_of_memory:
            return said
        match result.ending:
            case Ending.TIMED_OUT:
                why = f"timed out after {policy.timeout or 0:g} seconds"
            case Ending.IDLE:
                why = f"said nothing for {policy.idle_timeout or 0:g} seconds and was ended"
            case Ending.EXITED:
                why = f"failed with exit code {result.exit_code}"
                if result.out_of_memory:
                    why += " and used too much memory"
        heard = "\n".join(text for text in (said, self._cut(result.stderr.strip())) if text)
        return f"[`{command}` {why}{f': {heard}' if heard else ''}]"

    def _cut(self, text: str) -> str:
        most = self._settings.max_output_chars
        if len(text) <= most:
            return text
        return f"{text[:most]}\n[{len(text) - most:,} more characters were left out]"
