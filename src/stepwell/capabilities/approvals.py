"""Asks a person for approval before certain tools run. Owns the question and the check that the
answer is for exactly this call; the loop pauses the run and runs the call later.
"""

from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from inspect import Parameter, isawaitable, signature
from typing import Any, cast

from msgspec import UNSET, json
from msgspec.structs import replace

from stepwell.agent import AgentPlan
from stepwell.continuation import AgentStop
from stepwell.errors import ConfigurationError, describe
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import ToolCall
from stepwell.run_context import RunContext
from stepwell.state import Answered, Approval, PendingKind, ToolOutcome
from stepwell.text import truncate_with_note
from stepwell.tools import InputRequired, Tools
from stepwell.tools.result_text import format_result
from stepwell.tools.secret_arguments import hidden

AFTER_ALL_TOOLS = 900

APPROVAL_OF = "approval_of"
_MAX_PROMPT_CHARS = 1000

Rule = (
    Callable[[ToolCall], bool | Awaitable[bool]]
    | Callable[[ToolCall, RunContext[Any]], bool | Awaitable[bool]]
)


class UseApprovals:
    """Makes calls of certain tools wait until a person approves, edits or denies them.

    Select tools by name, by patterns such as ``"mcp_*"``, or with ``when``, a sync or async
    function of the call, or of the call and the run's context (``context.principal``). It sees the
    validated arguments with defaults filled in. If it raises or returns anything but True or False,
    a person is asked.

    The run pauses with reason ``input_required``. To resume it, pass the result of
    ``state.with_answer(state.pending[0], True)``, or of an ``Approval`` in place of True, to
    ``agent.run``. An approval is valid once, for one call with exactly these arguments. Subagents
    ask for the same approvals.

    >>> from stepwell import Agent, Approval
    >>> from stepwell.testing import MockTool, ScriptedModel, call
    >>> model = ScriptedModel([call("delete", id="c1", path="a"), "Fine, I left it."])
    >>> tools = [MockTool.returning("delete", "gone")]
    >>> agent = Agent(model, tools=tools, capabilities=[UseApprovals("delete")])
    >>> state = agent.run_sync("Delete a")
    >>> state.pending[0].prompt
    'May delete run with {"path":"a"}?'
    >>> denied = state.with_answer(state.pending[0], Approval.denied("keep it"))
    >>> agent.run_sync(denied).messages[2].text
    'Error: Blocked: a person denied this call: keep it'
    """

    def __init__(self, *tools: str, when: Rule | None = None) -> None:
        if not tools and when is None:
            raise ConfigurationError(
                'name the tools that need approval, as in UseApprovals("bash", "write_file"), or '
                "choose calls with UseApprovals(when=lambda call: ...)"
            )
        for name in tools:
            if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(
                    f"UseApprovals takes names of tools, got {name!r:.80}; write "
                    'UseApprovals("bash", "write_file")'
                )
        if when is not None and not callable(when):
            raise ConfigurationError(
                f"when is {when!r:.80}; pass a function of the call, or name the tools"
            )
        self._tools = tools
        self._when = when
        self._wants_context = when is not None and _required_parameters(when) > 1

    def _judge(self, call: ToolCall, context: RunContext[Any]) -> Any:
        rule = cast("Callable[..., Any]", self._when)
        return rule(call, context) if self._wants_context else rule(call)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the approval hooks."""
        ask = make_hook(HookTrigger.BEFORE_TOOL, self._ask, name="UseApprovals")
        tell = make_hook(HookTrigger.AFTER_TOOL, _report_edit, name="UseApprovals", inherited=True)
        return (
            plan.with_hook(replace(ask, last=True))
            .with_hook(tell)
            .when_complete(self._check_names, order=AFTER_ALL_TOOLS)
        )

    def _check_names(self, plan: AgentPlan) -> AgentPlan:
        """Raise if a name matches no tool: a typo would leave a tool unguarded."""
        names = Tools(plan.tools).names
        for pattern in self._tools:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigurationError(
                    f"no tool is called {pattern!r}, so nothing would wait for approval; tools: "
                    f"{', '.join(sorted(names)) or '(none)'}"
                )
        return plan

    def asks_for(self, tool: str) -> bool | None:
        """Return whether every call of the tool waits; None if ``when`` decides."""
        if any(fnmatchcase(tool, pattern) for pattern in self._tools):
            return True
        return False if self._when is None else None

    async def _ask(self, context: HookContext) -> HookContext | None:
        call = context.call
        if call is None:
            return None
        answered = context.answered
        if answered is not None and not _is_approval(answered):
            return None  # It was approved before, ran, and asked a question of its own.
        if context.block_reason is not None or context.result is not UNSET:
            return None  # It will not run.
        if answered is not None and _approved_identity(answered, call, context) == _identity(
            call, context
        ):
            return None
        if self.asks_for(call.name):
            return _question(call, context)
        return await self._ask_by_rule(call, context)

    async def _ask_by_rule(self, call: ToolCall, context: HookContext) -> HookContext | None:
        if self._when is None:
            return None
        try:
            arguments = context.validated_arguments()
        except Exception:  # noqa: BLE001 - a tool's own check raises what it likes
            return None  # What the tool refuses does not run.
        try:
            needs = self._judge(replace(call, arguments=arguments), context.state.context)
            if isawaitable(needs):
                needs = await needs
        except AgentStop:
            raise
        except Exception as error:  # noqa: BLE001 - a rule that fails must not let calls pass
            return _question(call, context, f"The approval rule failed: {describe(error)}")
        if isinstance(needs, bool):
            return _question(call, context) if needs else None
        kind = type(needs).__name__
        return _question(call, context, f"The approval rule returned {kind}, not True or False")


def _required_parameters(function: Callable[..., Any]) -> int:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return 1
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(it.kind in positional and it.default is Parameter.empty for it in parameters)


def _question(call: ToolCall, context: HookContext, note: str = "") -> HookContext:
    identity = _identity(call, context)
    shown = json.encode(identity["arguments"]).decode()
    secret = sorted(context.secret_arguments & set(call.arguments))
    resend = f" Pass {', '.join(secret)} again with Approval.edited." if secret else ""
    why = f" ({note})" if note else ""
    return context.with_result(
        InputRequired(
            prompt=f"May {call.name} run with {truncate_with_note(shown, _MAX_PROMPT_CHARS)}?"
            f"{resend}{why}",
            kind=PendingKind.APPROVAL,
            details={**identity, "note": note} if note else identity,
            resumes=True,
            kept={APPROVAL_OF: identity},
        )
    )


def _is_approval(answered: Answered) -> bool:
    kept = answered.kept
    return isinstance(kept, Mapping) and APPROVAL_OF in cast("Mapping[str, Any]", kept)


def _identity(call: ToolCall, context: HookContext) -> dict[str, Any]:
    """Return what an approval is bound to."""
    shown = hidden(call, context.secret_arguments, context.secret_fields)
    return {"tool": call.name, "arguments": dict(shown.arguments)}


def _approved_identity(answered: Answered, call: ToolCall, context: HookContext) -> dict[str, Any]:
    """Return the identity a person approved: the call as shown, or with edited arguments."""
    approval: Approval = answered.answer
    if approval.arguments is None:
        return answered.kept[APPROVAL_OF]
    edited = replace(
        call, name=answered.kept[APPROVAL_OF]["tool"], arguments=dict(approval.arguments)
    )
    return _identity(edited, context)


def _report_edit(context: HookContext) -> HookContext | None:
    """Tell the model in the result that a person edited the arguments."""
    call, execution = context.call, context.execution
    answered = context.answered
    if call is None or execution is None or answered is None or not _is_approval(answered):
        return None
    is_edited = isinstance(answered.answer, Approval) and answered.answer.arguments is not None
    if not is_edited or execution.outcome is not ToolOutcome.COMPLETED:
        return None
    arguments = json.encode(_identity(call, context)["arguments"]).decode()
    text = execution.text if context.result is UNSET else format_result(context.result)[1]
    return context.with_result(f"(A person changed the arguments to {arguments})\n{text}")
