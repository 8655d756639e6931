"""Asks a person before named tools run. Owns the question and the check that the answer is for
this very call; that the run pauses and the call runs later is the loop's business.
"""

from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from inspect import isawaitable
from typing import Any, cast

from msgspec import UNSET, json
from msgspec.structs import replace

from stepwell.agent import AgentPlan
from stepwell.continuation import AgentStop
from stepwell.errors import ConfigurationError, described
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import ToolCall
from stepwell.state import Answered, Approval, PendingKind, ToolOutcome
from stepwell.tools import InputRequired, Tools
from stepwell.tools.formatting import shown
from stepwell.tools.secrets import hidden

WHEN_ALL_TOOLS_ARE_KNOWN = 900

APPROVAL_OF = "approval_of"
_LONGEST_IN_PROMPT = 1000

Rule = Callable[[ToolCall], bool | Awaitable[bool]]


class UseApprovals:
    """Calls of these tools wait until a person approves, edits or denies them.

    Tools are named, also by patterns such as ``"mcp_*"``, or chosen by ``when``, a function of the
    call, sync or async. It gets the arguments as the tool does: checked, of their types, defaults
    filled in. If it raises, or returns anything but True or False, a person is asked.

    The run pauses with reason ``input_required``. ``state.with_answer(state.pending[0], True)``, or
    an ``Approval``, and another ``agent.run(state)`` take it up again. An approval holds for one
    call with exactly these arguments, once. Subagents ask for the same approvals.

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
                    f"approvals are for tools by name, not {name!r:.80}; write "
                    'UseApprovals("bash", "write_file")'
                )
        if when is not None and not callable(when):
            raise ConfigurationError(
                f"when is {when!r:.80}; give a function of the call, or name the tools"
            )
        self._tools = tools
        self._when = when

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan in which these calls wait."""
        ask = make_hook(HookTrigger.BEFORE_TOOL, self._ask, name="UseApprovals")
        tell = make_hook(HookTrigger.AFTER_TOOL, _told, name="UseApprovals", inherited=True)
        return (
            plan.with_hook(replace(ask, last=True))
            .with_hook(tell)
            .when_complete(self._checked, order=WHEN_ALL_TOOLS_ARE_KNOWN)
        )

    def _checked(self, plan: AgentPlan) -> AgentPlan:
        """A name that matches nothing is a typing error, which would leave a tool unguarded."""
        names = Tools(plan.tools).names
        for pattern in self._tools:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigurationError(
                    f"no tool is called {pattern!r}, so nothing would wait for approval; tools: "
                    f"{', '.join(sorted(names)) or '(none)'}"
                )
        return plan

    def asks_for(self, tool: str) -> bool | None:
        """Whether every call of that tool waits; None where a function of the call decides."""
        if any(fnmatchcase(tool, pattern) for pattern in self._tools):
            return True
        return False if self._when is None else None

    async def _ask(self, context: HookContext) -> HookContext | None:
        call = context.call
        if call is None:
            return None
        answered = context.answered
        if answered is not None and not _is_approval(answered):
            return None  # It was let through before, ran, and asked something itself.
        if context.block_reason is not None or context.result is not UNSET:
            return None  # It will not run.
        if answered is not None and _approved(answered, call, context) == _identity(call, context):
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
            needs = self._when(replace(call, arguments=arguments))
            if isawaitable(needs):
                needs = await needs
        except AgentStop:
            raise
        except Exception as error:  # noqa: BLE001 - a rule that can't tell must not let calls pass
            return _question(call, context, f"The approval rule failed: {described(error)}")
        if isinstance(needs, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            return _question(call, context) if needs else None
        kind = type(needs).__name__
        return _question(call, context, f"The approval rule returned {kind}, not True or False")


def _question(call: ToolCall, context: HookContext, note: str = "") -> HookContext:
    identity = _identity(call, context)
    shown = json.encode(identity["arguments"]).decode()
    secret = sorted(context.secret_arguments & set(call.arguments))
    gone = f" It needs {', '.join(secret)} anew: answer with Approval.edited." if secret else ""
    why = f" ({note})" if note else ""
    return context.with_result(
        InputRequired(
            prompt=f"May {call.name} run with {_clipped(shown)}?{gone}{why}",
            kind=PendingKind.APPROVAL,
            details={**identity, "note": note} if note else identity,
            resumes=True,
            kept={APPROVAL_OF: identity},
        )
    )


def _clipped(text: str) -> str:
    """For the prompt; ``details`` has the arguments whole."""
    left = len(text) - _LONGEST_IN_PROMPT
    if left <= 0:
        return text
    return f"{text[:_LONGEST_IN_PROMPT]}… ({left} more characters)"


def _is_approval(answered: Answered) -> bool:
    kept = answered.kept
    return isinstance(kept, Mapping) and APPROVAL_OF in cast("Mapping[str, Any]", kept)


def _identity(call: ToolCall, context: HookContext) -> dict[str, Any]:
    """What an approval is bound to."""
    shown = hidden(call, context.secret_arguments, context.secret_fields)
    return {"tool": call.name, "arguments": dict(shown.arguments)}


def _approved(answered: Answered, call: ToolCall, context: HookContext) -> dict[str, Any]:
    """What a person let run: the call as it was shown, or with the person's arguments."""
    approval: Approval = answered.answer
    if approval.arguments is None:
        return answered.kept[APPROVAL_OF]
    edited = replace(
        call, name=answered.kept[APPROVAL_OF]["tool"], arguments=dict(approval.arguments)
    )
    return _identity(edited, context)


def _told(context: HookContext) -> HookContext | None:
    """The model wrote other arguments than those that ran; it is told with the result."""
    call, execution = context.call, context.execution
    answered = context.answered
    if call is None or execution is None or answered is None or not _is_approval(answered):
        return None
    is_edited = isinstance(answered.answer, Approval) and answered.answer.arguments is not None
    if not is_edited or execution.outcome is not ToolOutcome.COMPLETED:
        return None
    arguments = json.encode(_identity(call, context)["arguments"]).decode()
    text = execution.text if context.result is UNSET else shown(context.result)[1]
    return context.with_result(f"(A person changed the arguments to {arguments})\n{text}")
