"""The bash tool and the capability that adds it. Every command runs in a sandbox, or not at all."""

import asyncio
import logging
from os import PathLike
from pathlib import Path

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.bash.output import result_of, size_of
from stepwell.capabilities.bash.policy import BashPolicy
from stepwell.capabilities.bash.progress import OutputProgress
from stepwell.errors import ConfigurationError, SandboxError
from stepwell.parameters import check_path
from stepwell.sandbox import ExecutionPolicy, Sandbox, SandboxResult, given_or_default
from stepwell.tools import BaseTool, ToolContext, ToolEffect, ToolFailure

logger = logging.getLogger("stepwell.bash")

MOST_NAMED = 5
"""Paths that the description names; a longer list tells the model no more."""

LONGEST_COMMAND = 120_000
"""Bytes; Linux takes a little more as one argument of a program."""

LONGEST_TIMEOUT = 7 * 24 * 3600
"""Seconds the model can name at all; the policies usually allow far less."""


class BashTool(BaseTool):
    """Runs a bash command in a sandbox: the one given, or the best that this machine has.

    Each command starts in ``base_dir``, or where ``execution`` says. A command that fails, times
    out or is refused is a failure that the model sees, not an error of the run.

    >>> tool = BashTool(execution=ExecutionPolicy(directory=Path("/project"), timeout=60))
    >>> tool.schema.name, list(tool.schema.parameters["properties"])
    ('bash', ['command', 'timeout'])
    """

    name = "bash"
    effect = ToolEffect.EXTERNAL
    # Commands of one response usually build on each other (make a file, then run it), and they
    # share a directory; side by side they would race.
    parallel = False

    def __init__(
        self,
        base_dir: str | PathLike[str] | None = None,
        *,
        policy: BashPolicy | None = None,
        execution: ExecutionPolicy | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.policy = _bash_policy(policy)
        self.execution = _execution_policy(base_dir, execution)
        self.sandbox = given_or_default(sandbox)
        is_confined = getattr(self.sandbox, "confines", True)
        super().__init__(description=_description(self.policy, self.execution, is_confined))

    async def __call__(
        self,
        command: str,
        context: ToolContext,
        timeout: int | None = None,  # noqa: ASYNC109 - the model's wish, which the sandbox enforces
    ) -> str | ToolFailure:
        """Run the command.

        Args:
            command: What bash should run; pipes, variables and several lines are fine.
            timeout: Seconds after which the command is ended, if not the usual ones.
        """
        if refusal := self._refusal(command, timeout):
            return ToolFailure(f"refused, nothing was run: {refusal}")
        execution = self._bounded(timeout, context.budget_left.seconds)
        try:
            result = await self._run(command, execution, context)
        except SandboxError as error:
            # The model can only tell that it can't; whoever runs the agent can do something.
            logger.warning("bash runs nothing: %s", error)
            return ToolFailure(f"nothing was run: {error}")
        return result_of(result, self.policy, execution)

    def _refusal(self, command: str, timeout: int | None) -> str | None:
        """Why the command is not run, or None."""
        if not command.strip():
            return "the command is empty"
        if timeout is not None and not 1 <= timeout <= LONGEST_TIMEOUT:
            return f"timeout must be from 1 to {LONGEST_TIMEOUT} seconds"
        if (denied := self.policy.denied_in(command)) is not None:
            return f"the command contains {denied!r}, which is not allowed here"
        try:
            size = len(command.encode())
        except UnicodeEncodeError:
            return "the command contains half a character (a lone surrogate)"
        if "\0" in command:
            return "the command contains a NUL character"
        if size > LONGEST_COMMAND:
            return (
                f"the command has {size} bytes, and {LONGEST_COMMAND} is the most; write long "
                "content into files, a part at a time"
            )
        return None

    def _bounded(self, requested: int | None, left: float | None) -> ExecutionPolicy:
        """The policy with the time that this command gets."""
        wanted = self.execution.timeout if requested is None else requested
        # At the deadline nothing is left, but a policy wants a time; the run ends the command.
        until_deadline = None if left is None else max(left, 0.001)
        bounds = (wanted, _most_seconds(self.policy, self.execution), until_deadline)
        return replace(
            self.execution, timeout=min((b for b in bounds if b is not None), default=None)
        )

    async def _run(
        self, command: str, execution: ExecutionPolicy, context: ToolContext
    ) -> SandboxResult:
        argv = ["bash", "-c", command]
        progress = OutputProgress(context.progress, asyncio.get_running_loop().call_later)
        try:
            return await self.sandbox.run(argv, execution, on_output=progress)
        finally:
            progress.close()


class UseBash:
    """Adds the ``bash`` tool, confined to a directory: the current one unless another is given.

    ``policy`` says how commands and their output are treated, ``execution`` what they may reach
    and use (no network by default). Without a ``sandbox`` the best one of this machine is taken;
    if it has none, the tool refuses and says what to install.

    >>> online = ExecutionPolicy(directory=Path("/project"), network=True)
    >>> UseBash(policy=BashPolicy(max_timeout=600), execution=online).tool.execution.network
    True
    """

    def __init__(
        self,
        base_dir: str | PathLike[str] | None = None,
        *,
        policy: BashPolicy | None = None,
        execution: ExecutionPolicy | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.tool = BashTool(base_dir, policy=policy, execution=execution, sandbox=sandbox)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan with the tool."""
        return plan.with_tools(self.tool)


def _most_seconds(policy: BashPolicy, execution: ExecutionPolicy) -> float | None:
    return execution.timeout if policy.max_timeout is None else policy.max_timeout


def _description(policy: BashPolicy, execution: ExecutionPolicy, is_confined: bool) -> str:
    sentences = [
        "Run a command with bash and get what it wrote to stdout and stderr.",
        "Each command starts anew in the base directory: files there last until the next command; "
        "variables and a change of directory don't.",
        *_about_rights(execution, is_confined),
        "It gets no input, so use options that keep programs from asking.",
        "What it leaves running in the background is ended with it.",
        _about_memory(execution.max_memory),
        _about_time(execution.timeout, _most_seconds(policy, execution)),
        f"Of more than {policy.max_output_chars} characters you see the beginning and the end.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _about_rights(execution: ExecutionPolicy, is_confined: bool) -> tuple[str, ...]:
    if not is_confined:
        return (
            "It is not confined: it can change all files of this user and use the network, so "
            "keep to the base directory.",
        )
    return (
        f"It can write {_named('in the base directory', execution.writable)} only.",
        _about_protection(execution.protected),
        f"It can also read {_named('', execution.readable)}." if execution.readable else "",
        "It can use the network." if execution.network else "It has no network.",
    )


def _about_protection(names: tuple[str, ...]) -> str:
    return f"Existing {', '.join(names[:MOST_NAMED])} and the like are read-only." if names else ""


def _named(first: str, paths: tuple[Path, ...]) -> str:
    named = [first] if first else []
    named += [str(path) for path in paths[:MOST_NAMED]]
    if len(paths) > MOST_NAMED:
        named.append(f"{len(paths) - MOST_NAMED} others")
    return " and ".join(named)


def _about_memory(most: int | None) -> str:
    return "" if most is None else f"It may use {size_of(most)} of memory."


def _about_time(usual: float | None, most: float | None) -> str:
    if usual is None:
        return "" if most is None else f"It is ended after {most:g} seconds."
    if most is None or most <= usual:
        return f"It is ended after {most or usual:g} seconds, or earlier if you give a timeout."
    return f"It is ended after {usual:g} seconds; with a timeout you can give it up to {most:g}."


def _bash_policy(policy: object) -> BashPolicy:
    if policy is None:
        return BashPolicy()
    if isinstance(policy, BashPolicy):
        return policy
    hint = "give an ExecutionPolicy as execution=" if isinstance(policy, ExecutionPolicy) else ""
    raise ConfigurationError(
        f"policy is {policy!r:.80}; {hint or 'write policy=BashPolicy(max_output_chars=...)'}"
    )


def _execution_policy(base_dir: str | PathLike[str] | None, execution: object) -> ExecutionPolicy:
    if base_dir is not None:
        check_path(base_dir, "base_dir")
    if execution is None:
        return ExecutionPolicy.in_("." if base_dir is None else base_dir)
    if not isinstance(execution, ExecutionPolicy):
        raise ConfigurationError(
            f"execution is {execution!r:.80}; write execution=ExecutionPolicy.in_(directory, ...)"
        )
    if base_dir is not None and Path(base_dir).expanduser().resolve() != execution.directory:
        raise ConfigurationError(
            f"base_dir is {base_dir} and execution works in {execution.directory}; give one of them"
        )
    return execution
