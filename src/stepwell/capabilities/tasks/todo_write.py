"""The tool with which a model writes its plan, and the policy that bounds the plan.

The arguments are checked here and not by pydantic: a bad plan is the model's business, not an error
of the run, and the model is told which task is wrong, by its position.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from msgspec import DecodeError, Struct, json, to_builtins

from stepwell.agent.metadata_keys import TASKS
from stepwell.capabilities.tasks.task import Task, TaskStatus, render_tasks, summarize_tasks
from stepwell.errors import ConfigurationError
from stepwell.models import ToolSchema
from stepwell.tools import ToolContext, ToolEffect, ToolFailure, ToolOutput
from stepwell.tools.formatting import shown

TODO_WRITE = "todo_write"


class TodoPolicy(Struct, frozen=True, kw_only=True):
    """How large a plan may be, and how often the model is shown it.

    A cadence of None or 0 means never.

    >>> TodoPolicy(max_items=5).max_items
    5
    """

    max_items: int = 20
    max_in_progress: int = 1
    render_every_steps: int | None = 10
    """The plan is shown at every such step, and when a new execution begins with an open plan."""
    reminder_every_steps: int | None = 10
    """After so many steps without ``todo_write`` the model is reminded of its open tasks, and
    within a long execution again. New executions do not repeat the reminder at their first step."""

    def __post_init__(self) -> None:
        for name in ("max_items", "max_in_progress"):
            _check(name, getattr(self, name), least=1, words="1 or more")
        for name in ("render_every_steps", "reminder_every_steps"):
            if getattr(self, name) is not None:
                words = "1 or more, or None or 0 for never"
                _check(name, getattr(self, name), least=0, words=words)


class TodoWriteTool:
    """Replaces the plan with the list it is given; what it accepts goes to the state's metadata.

    >>> TodoWriteTool().schema.name
    'todo_write'
    """

    def __init__(self, policy: TodoPolicy | None = None) -> None:
        self.policy = checked_policy(policy)
        self.effect = ToolEffect.PURE
        self.timeout: float | None = None
        # In call order, so that of several plans in one response the last one stays.
        self.parallel = False
        self.schema = ToolSchema(
            name=TODO_WRITE, description=_description(self.policy), parameters=_parameters()
        )

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are; ``invoke`` says what is wrong with them."""
        return dict(arguments)

    async def invoke(
        self,
        arguments: dict[str, Any],
        context: ToolContext,  # noqa: ARG002 - the executor gives it to every tool
    ) -> ToolOutput | ToolFailure:
        """The accepted plan as the model sees it, or what is wrong with it."""
        items = arguments.get("todos")
        if isinstance(items, str):  # some models write lists as JSON text
            with suppress(DecodeError):
                items = json.decode(items)
        if not isinstance(items, list):
            kind = "missing" if items is None else f"a {type(items).__name__}"
            return ToolFailure(f"todos is {kind}; give the whole list of tasks, [] for none")
        count, most = len(cast("list[Any]", items)), self.policy.max_items
        if count > most:
            words = f"{count} tasks are too many, at most {most} are allowed; combine some"
            return _unchanged([words])
        read = [_task(item, at) for at, item in enumerate(cast("list[Any]", items), start=1)]
        tasks = [task for task in read if isinstance(task, Task)]
        problems = [problem for problem in read if isinstance(problem, str)]
        problems += self._too_many_at_once(tasks)
        if problems:
            return _unchanged(problems)
        text = render_tasks(tasks)
        if tasks:
            text = f"{summarize_tasks(tasks)}\n{text}"
        return ToolOutput(value=text, metadata={TASKS: to_builtins(tasks)})

    def _too_many_at_once(self, tasks: list[Task]) -> list[str]:
        active = sum(task.status is TaskStatus.IN_PROGRESS for task in tasks)
        most = self.policy.max_in_progress
        if active <= most:
            return []
        return [
            f"{active} tasks are in_progress, at most {most} may be; set the others to pending or "
            "completed"
        ]


def _unchanged(problems: list[str]) -> ToolFailure:
    return ToolFailure(f"the tasks were not changed: {'; '.join(problems)}")


def checked_policy(policy: TodoPolicy | None) -> TodoPolicy:
    """The policy, or the usual one; anything else is a mistake."""
    if policy is None:
        return TodoPolicy()
    if not isinstance(policy, TodoPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{policy!r:.80} is no TodoPolicy; write TodoPolicy(max_items=20)")
    return policy


def _task(item: Any, position: int) -> Task | str:
    """The task, or what is wrong with it, naming its position."""
    if not isinstance(item, Mapping):
        return f"task {position} is not an object with content, status and activeForm"
    fields = cast("Mapping[str, Any]", item)
    content, status, active_form = (
        _stripped(fields.get(name)) for name in ("content", "status", "activeForm")
    )
    problems: list[str] = []
    if not content:
        problems.append("content is missing or empty; say what is to be done")
    if status not in tuple(TaskStatus):
        known = ", ".join(TaskStatus)
        given = fields.get("status")
        got = "missing" if given is None else f"{given!r:.40}"
        problems.append(f"status is {got}; use one of {known}")
    if not active_form:
        problems.append("activeForm is missing or empty; say what is being done meanwhile")
    if problems:
        return f"task {position}: {', and '.join(problems)}"
    return Task(content=content, status=TaskStatus(status), active_form=active_form)


def _stripped(value: Any) -> str:
    """Text without the white space around it, as it can be stored; empty if it is no text."""
    return str(shown(value)[0]).strip() if isinstance(value, str) else ""


def _description(policy: TodoPolicy) -> str:
    return (
        "Write the plan for work that takes several steps, and keep it up to date while you work. "
        "Each call replaces the whole list. Set a task to in_progress before you begin it "
        f"(at most {policy.max_in_progress} at a time) and to completed as soon as it is done. "
        f"At most {policy.max_items} tasks; an empty list clears the plan."
    )


def _parameters() -> dict[str, Any]:
    def words(description: str) -> dict[str, str]:
        return {"type": "string", "description": description}

    task = {
        "type": "object",
        "properties": {
            "content": words("What is to be done, as an order: Run the tests"),
            "status": {"type": "string", "enum": [str(status) for status in TaskStatus]},
            "activeForm": words("What is shown while it is in progress: Running the tests"),
        },
        "required": ["content", "status", "activeForm"],
        "additionalProperties": False,
    }
    todos = {"type": "array", "items": task, "description": "The whole list, in order."}
    return {
        "type": "object",
        "properties": {"todos": todos},
        "required": ["todos"],
        "additionalProperties": False,
    }


def _check(name: str, value: Any, *, least: int, words: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"TodoPolicy.{name} must be {words}, got {value!r}")
