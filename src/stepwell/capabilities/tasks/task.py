"""A task of the model's plan; reading a plan from a state and rendering it."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct, ValidationError, convert, field

from stepwell.agent.metadata_keys import TASKS
from stepwell.state import AgentState

NO_TASKS = "(no tasks)"


class TaskStatus(StrEnum):
    """The progress of a task."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


_CIRCLES = {
    TaskStatus.COMPLETED: "●",
    TaskStatus.IN_PROGRESS: "◐",
    TaskStatus.PENDING: "○",
}
_WORDS = {
    TaskStatus.COMPLETED: "completed",
    TaskStatus.IN_PROGRESS: "in progress",
    TaskStatus.PENDING: "pending",
}


class Task(Struct, frozen=True, kw_only=True):
    """One task of a plan. ``active_form`` is the label while the task is in progress.

    >>> task = Task(content="Run tests", status=TaskStatus.IN_PROGRESS, active_form="Running tests")
    >>> task.label
    'Running tests'
    """

    content: str
    status: TaskStatus
    active_form: str = field(name="activeForm")

    @property
    def is_open(self) -> bool:
        """Whether the task is not completed."""
        return self.status is not TaskStatus.COMPLETED

    @property
    def label(self) -> str:
        """The text that shows the task, on one line."""
        label_text = self.active_form if self.status is TaskStatus.IN_PROGRESS else self.content
        return " ".join(label_text.split())


def tasks_of(state: AgentState) -> tuple[Task, ...]:
    """Return the plan in a state, for a user interface; empty if there is none.

    A value of the application under the same key that is not a plan is ignored.

    >>> tasks_of(AgentState.empty())
    ()
    """
    stored = state.metadata.get(TASKS)
    if not stored:
        return ()
    try:
        return convert(stored, tuple[Task, ...])
    except ValidationError:
        return ()


def render_tasks(tasks: Sequence[Task]) -> str:
    """Render the plan as numbered lines, one per task.

    >>> print(
    ...     render_tasks(
    ...         [
    ...             Task(content="Read", status=TaskStatus.COMPLETED, active_form="Reading"),
    ...             Task(content="Write", status=TaskStatus.IN_PROGRESS, active_form="Writing"),
    ...         ]
    ...     )
    ... )
    1. ● Read
    2. ◐ Writing
    """
    lines = [
        f"{number}. {_CIRCLES[task.status]} {task.label}"
        for number, task in enumerate(tasks, start=1)
    ]
    return "\n".join(lines) or NO_TASKS


def summarize_tasks(tasks: Sequence[Task]) -> str:
    """Summarize how many tasks have each status.

    >>> summarize_tasks([Task(content="Read", status=TaskStatus.PENDING, active_form="Reading")])
    '1 task: 0 completed, 0 in progress, 1 pending'
    """
    if not tasks:
        return NO_TASKS
    statuses = [task.status for task in tasks]
    counts = ", ".join(f"{statuses.count(status)} {word}" for status, word in _WORDS.items())
    return f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}: {counts}"
