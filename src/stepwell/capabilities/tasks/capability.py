"""The task planning capability, which also decides when the model sees its plan again.

The plan is added after the conversation for one turn and never stored, so that neither the history
nor the provider's prompt cache changes.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.tasks.task import Task, render_tasks, summarize_tasks, tasks_of
from stepwell.capabilities.tasks.todo_write import (
    TODO_WRITE,
    TodoPolicy,
    TodoWriteTool,
    policy_or_default,
)
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import Message, TextPart
from stepwell.models import ModelRequest
from stepwell.state import AgentState, AgentStep

SOURCE = "UseTaskPlanning"
PREAMBLE = "(An automatic note, not from the user.)"
REMINDER = (
    f"You have open tasks, and {TODO_WRITE} was not used for a while. Update the list if it is out "
    "of date."
)
HINT = f"If this work takes several steps, use {TODO_WRITE} to keep a plan."


class UseTaskPlanning:
    """Adds the ``todo_write`` tool and shows the model its plan at intervals set by the policy.

    >>> from stepwell.agent import Agent
    >>> from stepwell.testing import ScriptedModel, call
    >>> read = {"content": "Read", "status": "in_progress", "activeForm": "Reading"}
    >>> model = ScriptedModel([call("todo_write", todos=[read]), "Done."])
    >>> state = Agent(model, capabilities=[UseTaskPlanning()]).run_sync("Go.")
    >>> [task.label for task in tasks_of(state)]
    ['Reading']
    """

    def __init__(self, policy: TodoPolicy | None = None) -> None:
        self.policy = policy_or_default(policy)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the tool and the hook that shows the tasks."""
        plan = plan.with_tools(TodoWriteTool(self.policy))
        if not self.policy.render_every_steps and not self.policy.reminder_every_steps:
            return plan
        # Runs late, so that it sees which tools the other hooks leave in the request.
        trigger = HookTrigger.BEFORE_INFERENCE
        return plan.with_hook(make_hook(trigger, self._add_note, priority=-100, name=SOURCE))

    def _add_note(self, context: HookContext) -> HookContext | None:
        request, execution = context.request, context.state.execution
        if request is None or (execution is not None and execution.wrapping_up):
            return None
        notes = self._notes(context.state)
        if not notes or not _can_write(request):
            return None
        return context.with_request(_with_note(request, "\n".join((PREAMBLE, *notes))))

    def _notes(self, state: AgentState) -> list[str]:
        tasks = tasks_of(state)
        notes: list[str] = []
        if tasks and self._should_render(state, tasks):
            notes.append(f"Your plan, {summarize_tasks(tasks)}\n{render_tasks(tasks)}")
        every = self.policy.reminder_every_steps
        if not every:
            return notes
        if any(task.is_open for task in tasks) and _is_reminder_due(state, every):
            notes.append(REMINDER)
        elif not tasks and _is_hint_due(state, every):
            notes.append(HINT)
        return notes

    def _should_render(self, state: AgentState, tasks: Sequence[Task]) -> bool:
        every = self.policy.render_every_steps
        if not every:
            return False
        if state.step_number % every == 0:
            return True
        # An open plan at the first step comes from an earlier execution, maybe long ago.
        return state.step_number == 1 and any(task.is_open for task in tasks)


def _is_reminder_due(state: AgentState, every: int) -> bool:
    """Return whether a reminder is due: after ``every`` steps without a new plan, and then again
    every so many steps. Looks back over at most ``2 * every`` steps.

    Only a long execution gets more than one reminder; otherwise a conversation of short executions
    would get one at each first step.
    """
    stale_steps = _steps_without_plan(state, 2 * every)
    taken = state.step_number - 1
    return stale_steps == every or (stale_steps == 2 * every and taken > 0 and taken % every == 0)


def _is_hint_due(state: AgentState, every: int) -> bool:
    """Return whether a hint to plan is due; only a long execution gets one."""
    taken = state.step_number - 1
    return taken > 0 and taken % every == 0 and _steps_without_plan(state, every) == every


def _steps_without_plan(state: AgentState, limit: int) -> int:
    """Return how many steps ago ``todo_write`` last succeeded, at most ``limit``.

    Steps of earlier executions are not kept, so their assistant messages are counted.
    """
    steps, count = state.steps, 0
    while count < min(limit, len(steps)):
        if _wrote_plan(steps[len(steps) - 1 - count].step):
            return count
        count += 1
    own = "" if state.execution is None else f"{state.execution.id}:"
    messages = state.messages
    for index in range(len(messages) - 1, -1, -1):
        if count == limit:
            break
        message = messages[index]
        if own and message.id.startswith(own):
            continue
        result = message.tool_result
        if result is not None and result.tool_name == TODO_WRITE and not result.is_error:
            break
        count += message.is_assistant()
    return count


def _wrote_plan(step: AgentStep) -> bool:
    return any(done.call.name == TODO_WRITE and done.succeeded for done in step.tool_executions)


def _can_write(request: ModelRequest) -> bool:
    """Return whether the model can plan; a driver that describes tools in the prompt lists none."""
    return not request.tools or any(tool.name == TODO_WRITE for tool in request.tools)


def _with_note(request: ModelRequest, note: str) -> ModelRequest:
    """Add the note after other instructions that hold for this turn only."""
    instruction = request.instruction
    if instruction is None:
        return replace(request, instruction=Message.system(note, id=f"{TODO_WRITE}:note"))
    return replace(
        request,
        instruction=replace(instruction, parts=(*instruction.parts, TextPart(f"\n\n{note}"))),
    )
