"""Task planning: the model keeps a list of tasks and sees it again at intervals."""

from stepwell.capabilities.tasks.capability import UseTaskPlanning
from stepwell.capabilities.tasks.task import (
    Task,
    TaskStatus,
    render_tasks,
    summarize_tasks,
    tasks_of,
)
from stepwell.capabilities.tasks.todo_write import TodoPolicy, TodoWriteTool

__all__ = [
    "Task",
    "TaskStatus",
    "TodoPolicy",
    "TodoWriteTool",
    "UseTaskPlanning",
    "render_tasks",
    "summarize_tasks",
    "tasks_of",
]
