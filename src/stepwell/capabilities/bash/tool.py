"""The bash tool and the capability that adds it. Every command runs in a sandbox, or not at all."""

import asyncio
import logging
from os import PathLike
from pathlib import Path

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.bash.output import format_result, format_size
from stepwell.capabilities.bash.policy import BashPolicy
from stepwell.capabilities.bash.progress import OutputProgress
from stepwell.errors import ConfigurationError, SandboxError
from stepwell.parameters import check_path
from stepwell.sandbox import ExecutionPolicy, Sandbox, SandboxResult, sandbox_or_default
from stepwell.text import HALF_CHARACTER, is_encodable
from stepwell.tools import BaseTool, ToolContext, ToolEffect, ToolFailure

logger = logging.getLogger("stepwell.bash")

MAX_LISTED_PATHS = 5
"""Paths listed in the tool's description; more would not help the model."""

MAX_COMMAND_BYTES = 120_000
"""Slightly below what Linux accepts as one argument of a program."""

MAX_TIMEOUT_SECONDS = 7 * 24 * 3600
"""Upper bound of the timeout a model can request; policies usually allow far less."""


class BashTool(BaseTool):
    """Runs a bash command in the given sandbox, or in the best one that this machine has.

    Each command starts in ``base_dir`` or in the directory of ``execution``. A command that fails,
    times out or is refused is a failure that the model sees, not an error of the run.

    >>> tool = BashTool(execution=ExecutionPolicy(directory=Path("/project"), timeout=60))
    >>> tool.schema.name, list(tool.schema.parameters["properties"])
    ('bash', ['command', 'timeout'])
    """

    name = "bash"
    effect = ToolEffect.EXTERNAL
    # Commands of one response often build on each other (create a file, then run it) and share a
    # directory; in parallel they would race.
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
        self.sandbox = sandbox_or_default(sandbox)
        is_confined = getattr(self.sandbox, "confines", True)
        super().__init__(description=_description(self.policy, self.execution, is_confined))

    async def __call__(
        self,
        command: str,
        context: ToolContext,
        timeout: int | None = None,  # noqa: ASYNC109 - requested by the model, enforced by the sandbox
    ) -> str | ToolFailure:
        """Run the command.

        Args:
            command: The command for bash; pipes, variables and several lines are allowed.
            timeout: Seconds after which the command is killed; overrides the default.
        """
        if refusal := self._refusal(command, timeout):
            return ToolFailure(f"refused, nothing was run: {refusal}")
        execution = self._execution_with_timeout(timeout, context.budget_left.seconds)
        try:
            result = await self._run(command, execution, context)
        except SandboxError as error:
            # The model can't fix this, but the operator of the agent can.
            logger.warning("the bash tool can't run commands: %s", error)
            return ToolFailure(f"nothing was run: {error}")
        return format_result(result, self.policy, execution)

    def _refusal(self, command: str, timeout: int | None) -> str | None:
        """Return why the command is not run, or None."""
        if not command.strip():
            return "the command is empty"
        if timeout is not None and not 1 <= timeout <= MAX_TIMEOUT_SECONDS:
            return f"timeout must be from 1 to {MAX_TIMEOUT_SECONDS} seconds"
        if (denied := self.policy.denied_in(command)) is not None:
            return f"the command contains {denied!r}, which is not allowed here"
        if not is_encodable(command):
            return f"the command contains {HALF_CHARACTER}"
        if "\0" in command:
            return "the command contains a NUL character"
        if (size := len(command.encode())) > MAX_COMMAND_BYTES:
            return (
                f"the command has {size} bytes, and the limit is {MAX_COMMAND_BYTES}; write long "
                "content to files, one part at a time"
            )
        return None

    def _execution_with_timeout(self, requested: int | None, left: float | None) -> ExecutionPolicy:
        """Return the policy with the timeout of this command."""
        wanted = self.execution.timeout if requested is None else requested
        # A policy needs a timeout above 0 even at the deadline; the run ends the command then.
        until_deadline = None if left is None else max(left, 0.001)
        bounds = (wanted, _max_seconds(self.policy, self.execution), until_deadline)
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
    """Adds the ``bash`` tool, confined to a directory, by default the current one.

    ``policy`` sets how commands and their output are handled, ``execution`` what they may access
    and use (no network by default). Without ``sandbox`` the best sandbox of this machine is used;
    if there is none, the tool refuses to run and says what to install.

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
        """Return the plan with the tool."""
        return plan.with_tools(self.tool)


def _max_seconds(policy: BashPolicy, execution: ExecutionPolicy) -> float | None:
    return execution.timeout if policy.max_timeout is None else policy.max_timeout


def _description(policy: BashPolicy, execution: ExecutionPolicy, is_confined: bool) -> str:
    sentences = [
        "Run a command with bash and return its stdout and stderr.",
        "Each command starts in a new shell in the base directory: files persist between commands; "
        "variables and the working directory don't.",
        *_access_sentences(execution, is_confined),
        "It gets no input, so use options that keep programs from prompting.",
        "Background processes are killed when the command ends.",
        _memory_sentence(execution.max_memory),
        _time_sentence(execution.timeout, _max_seconds(policy, execution)),
        f"Output over {policy.max_output_chars} characters is truncated in the middle.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _access_sentences(execution: ExecutionPolicy, is_confined: bool) -> tuple[str, ...]:
    if not is_confined:
        return (
            "It is not confined: it can change all files of this user and use the network, so "
            "stay in the base directory.",
        )
    return (
        f"It can write {_join_paths('in the base directory', execution.writable)} only.",
        _protection_sentence(execution.protected),
        f"It can also read {_join_paths('', execution.readable)}." if execution.readable else "",
        "It can use the network." if execution.network else "It has no network.",
    )


def _protection_sentence(names: tuple[str, ...]) -> str:
    return (
        f"Existing {', '.join(names[:MAX_LISTED_PATHS])} and the like are read-only."
        if names
        else ""
    )


def _join_paths(first: str, paths: tuple[Path, ...]) -> str:
    named = [first] if first else []
    named += [str(path) for path in paths[:MAX_LISTED_PATHS]]
    if len(paths) > MAX_LISTED_PATHS:
        named.append(f"{len(paths) - MAX_LISTED_PATHS} others")
    return " and ".join(named)


def _memory_sentence(limit: int | None) -> str:
    return "" if limit is None else f"It may use {format_size(limit)} of memory."


def _time_sentence(default: float | None, limit: float | None) -> str:
    if default is None:
        return "" if limit is None else f"It is killed after {limit:g} seconds."
    if limit is None or limit <= default:
        return f"It is killed after {limit or default:g} seconds, or earlier if you set a timeout."
    return f"It is killed after {default:g} seconds; you can set a timeout of up to {limit:g}."


def _bash_policy(policy: object) -> BashPolicy:
    if policy is None:
        return BashPolicy()
    if isinstance(policy, BashPolicy):
        return policy
    hint = "pass an ExecutionPolicy as execution=" if isinstance(policy, ExecutionPolicy) else ""
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
            f"base_dir is {base_dir} but execution.directory is {execution.directory}; set only one"
        )
    return execution
