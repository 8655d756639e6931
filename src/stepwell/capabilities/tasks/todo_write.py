"""The tool that writes the model's plan, and the policy that limits the plan.

The arguments are checked here and not by pydantic: an invalid plan is a failure and not an error of
the run, and the message names the invalid task by its position.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from msgspec import DecodeError, Struct, json, to_builtins

from stepwell.agent.metadata_keys import TASKS
from stepwell.capabilities.tasks.task import Task, TaskStatus, render_tasks, summarize_tasks
from stepwell.models import ToolSchema
from stepwell.parameters import check_integer, check_kind
from stepwell.tools import ToolContext, ToolEffect, ToolFailure, ToolOutput
from stepwell.tools.result_text import format_result

TODO_WRITE = "todo_write"


class TodoPolicy(Struct, frozen=True, kw_only=True):
    """How large a plan may be, and how often the model sees it.

    An interval of None or 0 means never.

    >>> TodoPolicy(max_items=5).max_items
    5
    """

    max_items: int = 20
    max_in_progress: int = 1
    render_every_steps: int | None = 10
    """Show the plan every so many steps, and when a new execution starts with an open plan."""
    reminder_every_steps: int | None = 10
    """Remind the model of its open tasks after so many steps without ``todo_write``, repeatedly in
    a long execution. A new execution does not repeat the reminder at its first step."""

    def __post_init__(self) -> None:
        for name in ("max_items", "max_in_progress"):
            check_integer(getattr(self, name), f"TodoPolicy.{name}", least=1)
        for name in ("render_every_steps", "reminder_every_steps"):
            if getattr(self, name) is not None:
                check_integer(getattr(self, name), f"TodoPolicy.{name}", least=0)


class TodoWriteTool:
    """Replaces the plan; an accepted plan is stored in the state's metadata.

    >>> TodoWriteTool().schema.name
    'todo_write'
    """

    def __init__(self, policy: TodoPolicy | None = None) -> None:
        self.policy = policy_or_default(policy)
        self.effect = ToolEffect.PURE
        self.timeout: float | None = None
        # In call order, so that the last of several plans in one response wins.
        self.parallel = False
        self.schema = ToolSchema(
            name=TODO_WRITE, description=_description(self.policy), parameters=_parameters()
        )

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged; ``invoke`` checks them."""
        return dict(arguments)

    async def invoke(
        self,
        arguments: dict[str, Any],
        context: ToolContext,  # noqa: ARG002 - the executor gives it to every tool
    ) -> ToolOutput | ToolFailure:
        """Store the plan and return it rendered, or return what is wrong with it."""
        items = arguments.get("todos")
        if isinstance(items, str):  # some models write lists as JSON text
            with suppress(DecodeError):
                items = json.decode(items)
        if not isinstance(items, list):
            kind = "missing" if items is None else f"a {type(items).__name__}"
            return ToolFailure(f"todos is {kind}; pass the complete list of tasks, [] for none")
        count, limit = len(cast("list[Any]", items)), self.policy.max_items
        if count > limit:
            return _rejection(
                [f"{count} tasks are too many, at most {limit} are allowed; combine some"]
            )
        read = [_parse_task(item, at) for at, item in enumerate(cast("list[Any]", items), start=1)]
        tasks = [task for task in read if isinstance(task, Task)]
        problems = [problem for problem in read if isinstance(problem, str)]
        problems += self._in_progress_problems(tasks)
        if problems:
            return _rejection(problems)
        text = render_tasks(tasks)
        if tasks:
            text = f"{summarize_tasks(tasks)}\n{text}"
        return ToolOutput(value=text, metadata={TASKS: to_builtins(tasks)})

    def _in_progress_problems(self, tasks: list[Task]) -> list[str]:
        active = sum(task.status is TaskStatus.IN_PROGRESS for task in tasks)
        limit = self.policy.max_in_progress
        if active <= limit:
            return []
        return [
            f"{active} tasks are in_progress, at most {limit} may be; set the others to pending or "
            "completed"
        ]


def _rejection(problems: list[str]) -> ToolFailure:
    return ToolFailure(f"the tasks were not changed: {'; '.join(problems)}")


def policy_or_default(policy: TodoPolicy | None) -> TodoPolicy:
    """Return the policy, or the default for None."""
    return TodoPolicy() if policy is None else check_kind(policy, "policy", TodoPolicy)


def _parse_task(item: Any, position: int) -> Task | str:
    """Return the task, or a message that says what is wrong with it and its position."""
    if not isinstance(item, Mapping):
        return f"task {position} is not an object with content, status and activeForm"
    fields = cast("Mapping[str, Any]", item)
    content, status, active_form = (
        _clean_text(fields.get(name)) for name in ("content", "status", "activeForm")
    )
    problems: list[str] = []
    if not content:
        problems.append("content is missing or empty; describe the task")
    if status not in tuple(TaskStatus):
        known = ", ".join(TaskStatus)
        given = fields.get("status")
        got = "missing" if given is None else f"{given!r:.40}"
        problems.append(f"status is {got}; use one of {known}")
    if not active_form:
        problems.append("activeForm is missing or empty; write for example 'Running the tests'")
    if problems:
        return f"task {position}: {', and '.join(problems)}"
    return Task(content=content, status=TaskStatus(status), active_form=active_form)


def _clean_text(value: Any) -> str:
    """Return storable text without surrounding whitespace; empty if the value is not text."""
    return str(format_result(value)[0]).strip() if isinstance(value, str) else ""


def _description(policy: TodoPolicy) -> str:
    return (
        "Write a plan for work that takes several steps, and keep it up to date while you work. "
        "Each call replaces the whole list. Set a task to in_progress before you start it "
        f"(at most {policy.max_in_progress} at a time) and to completed as soon as it is done. "
        f"At most {policy.max_items} tasks; an empty list clears the plan."
    )


def _parameters() -> dict[str, Any]:
    def text_field(description: str) -> dict[str, str]:
        return {"type": "string", "description": description}

    task = {
        "type": "object",
        "properties": {
            "content": text_field("The task as an imperative: Run the tests"),
            "status": {"type": "string", "enum": [str(status) for status in TaskStatus]},
            "activeForm": text_field("The label while it is in progress: Running the tests"),
        },
        "required": ["content", "status", "activeForm"],
        "additionalProperties": False,
    }
    todos = {"type": "array", "items": task, "description": "The complete list, in order."}
    return {
        "type": "object",
        "properties": {"todos": todos},
        "required": ["todos"],
        "additionalProperties": False,
    }
