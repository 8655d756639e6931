"""Task planning as a capability, and when the model is shown its plan again.

What is shown is said behind the conversation for one turn and never stored, so that neither the
history nor the provider's prompt cache changes.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.tasks.task import Task, render_tasks, summarize_tasks, tasks_of
from stepwell.capabilities.tasks.todo_write import (
    TODO_WRITE,
    TodoPolicy,
    TodoWriteTool,
    checked_policy,
)
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import Message, TextPart
from stepwell.models import ModelRequest
from stepwell.state import AgentState, AgentStep

SOURCE = "UseTaskPlanning"
PREAMBLE = "(An automatic note, not from the user.)"
REMINDER = (
    f"You have open tasks, and {TODO_WRITE} was not used for a while. Bring the list up to date if "
    "it no longer says how far you are."
)
HINT = f"If this work takes several steps, {TODO_WRITE} can keep a plan of them."


class UseTaskPlanning:
    """Gives the model ``todo_write``, and shows it its plan again as the policy says.

    >>> from stepwell.agent import Agent
    >>> from stepwell.testing import ScriptedModel, call
    >>> read = {"content": "Read", "status": "in_progress", "activeForm": "Reading"}
    >>> model = ScriptedModel([call("todo_write", todos=[read]), "Done."])
    >>> state = Agent(model, capabilities=[UseTaskPlanning()]).run_sync("Go.")
    >>> [task.label for task in tasks_of(state)]
    ['Reading']
    """

    def __init__(self, policy: TodoPolicy | None = None) -> None:
        self.policy = checked_policy(policy)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan with the tool, and the hook that shows what was planned."""
        plan = plan.with_tools(TodoWriteTool(self.policy))
        if not self.policy.render_every_steps and not self.policy.reminder_every_steps:
            return plan
        # Late, so that it sees which tools the other hooks leave in the request.
        trigger = HookTrigger.BEFORE_INFERENCE
        return plan.with_hook(make_hook(trigger, self._noted, priority=-100, name=SOURCE))

    def _noted(self, context: HookContext) -> HookContext | None:
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
        if tasks and self._is_shown(state, tasks):
            notes.append(f"Your plan, {summarize_tasks(tasks)}\n{render_tasks(tasks)}")
        every = self.policy.reminder_every_steps
        if not every:
            return notes
        if any(task.is_open for task in tasks) and _is_forgotten(state, every):
            notes.append(REMINDER)
        elif not tasks and _lacks_plan(state, every):
            notes.append(HINT)
        return notes

    def _is_shown(self, state: AgentState, tasks: Sequence[Task]) -> bool:
        every = self.policy.render_every_steps
        if not every:
            return False
        if state.step_number % every == 0:
            return True
        # An open plan at the first step was made in an earlier execution, maybe long ago.
        return state.step_number == 1 and any(task.is_open for task in tasks)


def _is_forgotten(state: AgentState, every: int) -> bool:
    """Whether a reminder is due: after that many steps without a new plan, and then again, but
    never sooner than that many steps later. It looks back over twice as many steps at most.

    Only a run that became long in this execution gets more than one: a conversation of short
    executions would get one at each first step.
    """
    unused = _steps_without_plan(state, 2 * every)
    taken = state.step_number - 1
    return unused == every or (unused == 2 * every and taken > 0 and taken % every == 0)


def _lacks_plan(state: AgentState, every: int) -> bool:
    """Whether a hint is due: only work that became long in this execution is worth one."""
    taken = state.step_number - 1
    return taken > 0 and taken % every == 0 and _steps_without_plan(state, every) == every


def _steps_without_plan(state: AgentState, most: int) -> int:
    """How many steps ago ``todo_write`` last succeeded, or ``most`` if it is longer.

    Steps of earlier executions are gone, so those are counted by what they said.
    """
    steps, count = state.steps, 0
    while count < min(most, len(steps)):
        if _wrote_plan(steps[len(steps) - 1 - count].step):
            return count
        count += 1
    own = "" if state.execution is None else f"{state.execution.id}:"
    messages = state.messages
    for index in range(len(messages) - 1, -1, -1):
        if count == most:
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
    """Whether the model may still plan; a driver that offers tools in words lists none."""
    return not request.tools or any(tool.name == TODO_WRITE for tool in request.tools)


def _with_note(request: ModelRequest, note: str) -> ModelRequest:
    """The request with the note behind whatever else is said for this turn only."""
    said = request.instruction
    if said is None:
        return replace(request, instruction=Message.system(note, id=f"{TODO_WRITE}:note"))
    return replace(request, instruction=replace(said, parts=(*said.parts, TextPart(f"\n\n{note}"))))
