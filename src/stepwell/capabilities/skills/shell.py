"""Runs the commands in a skill's text and replaces them with their output. Only if the host enabled
it, and always in a sandbox.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from stepwell.capabilities.skills.arguments import SkillArguments
from stepwell.errors import SandboxError
from stepwell.parameters import check_integer, check_kind
from stepwell.sandbox import Ending, ExecutionPolicy, Sandbox, SandboxResult, sandbox_or_default
from stepwell.text import truncate_with_note

_MARK = re.compile(r"(?<!\S)!`([^`\n]+)`|^```![ \t]*\n", re.MULTILINE)
_END_OF_BLOCK = re.compile(r"^```[ \t]*$", re.MULTILINE)

MIN_SECONDS = 0.001


class ShellPreprocessing(Struct, frozen=True, kw_only=True, eq=False):
    """Enables commands in skills, marked as !`...`, and sets the policy under which they run.

    Commands start in the policy's directory and may also read the skill's directory. Without
    ``sandbox`` the best sandbox of this machine is used. A command gets the skill's arguments as
    the shell's ``$1`` and ``$ARGUMENTS``, never as part of the command's text.

    >>> ShellPreprocessing(policy=ExecutionPolicy(directory=Path("/project"))).max_commands
    20
    """

    policy: ExecutionPolicy
    sandbox: Sandbox | None = None
    max_output_chars: int = 10_000
    """Limit of the output of one command."""
    max_commands: int = 20
    """Limit of commands run for one skill; later ones are not run."""

    def __post_init__(self) -> None:
        check_kind(self.policy, "policy", ExecutionPolicy)
        sandbox_or_default(self.sandbox)
        for name in ("max_output_chars", "max_commands"):
            check_integer(getattr(self, name), name, least=1)


class MarkedCommand(Struct, frozen=True):
    """A command in a text, and where its mark starts and ends."""

    command: str
    start: int
    end: int


def marked_commands(text: str) -> Iterator[MarkedCommand]:
    """Yield the commands marked as !`...`, and fenced blocks whose fence ends in ``!``.

    >>> [marked.command for marked in marked_commands("Now: !`git status`, `!ls`")]
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
    """Return the pieces of the text before, between and after its commands."""
    starts = [0, *(marked.end for marked in commands)]
    ends = [*(marked.start for marked in commands), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


class CommandRunner:
    """Runs the marked commands of skills."""

    def __init__(self, settings: ShellPreprocessing) -> None:
        self._settings = settings
        self._sandbox = sandbox_or_default(settings.sandbox)

    async def fill(
        self, body: str, arguments: SkillArguments, *, seconds_left: float | None
    ) -> str:
        """Fill the body's placeholders and replace its commands with their output."""
        commands = tuple(marked_commands(body))
        first, *others = arguments.fill_all(texts_between(body, commands))
        pieces = [first]
        limit = self._settings.max_commands
        for count, (marked, text) in enumerate(zip(commands, others, strict=True), start=1):
            if count > limit:
                output = f"[not run, the limit is {limit} commands per skill: `{marked.command}`]"
            else:
                output = await self._run(marked.command, arguments, seconds_left)
            pieces += (output, text)
        return "".join(pieces)

    async def _run(
        self, command: str, arguments: SkillArguments, seconds_left: float | None
    ) -> str:
        policy = self._policy(arguments, seconds_left)
        argv = ["bash", "-c", arguments.shell_command(command), "skill", *arguments.words]
        try:
            result = await self._sandbox.run(argv, policy)
        except SandboxError as error:
            return f"[`{command}` was not run: {error}]"
        return self._format_result(command, result, policy)

    def _policy(self, arguments: SkillArguments, seconds_left: float | None) -> ExecutionPolicy:
        policy = self._settings.policy
        timeouts = [s for s in (policy.timeout, seconds_left) if s is not None]
        readable = policy.readable
        if arguments.directory is not None:
            readable = (*readable, Path(arguments.directory).resolve())
        return replace(
            policy,
            timeout=max(min(timeouts), MIN_SECONDS) if timeouts else None,
            environment={**policy.environment, **arguments.environment},
            readable=readable,
        )

    def _format_result(self, command: str, result: SandboxResult, policy: ExecutionPolicy) -> str:
        output = self._truncate(result.stdout.rstrip("\n"))
        if result.ending is Ending.EXITED and result.exit_code == 0 and not result.out_of_memory:
            return output
        match result.ending:
            case Ending.TIMED_OUT:
                why = f"timed out after {policy.timeout or 0:g} seconds"
            case Ending.IDLE:
                why = f"had no output for {policy.idle_timeout or 0:g} seconds and was killed"
            case Ending.EXITED:
                why = f"failed with exit code {result.exit_code}"
                if result.out_of_memory:
                    why += " and used too much memory"
        outputs = "\n".join(
            text for text in (output, self._truncate(result.stderr.strip())) if text
        )
        return f"[`{command}` {why}{f': {outputs}' if outputs else ''}]"

    def _truncate(self, text: str) -> str:
        return truncate_with_note(text, self._settings.max_output_chars)
