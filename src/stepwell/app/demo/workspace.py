"""The folder that the demo's agent works in: a small shop with a mistake in its prices."""

import csv
import sys
from pathlib import Path

from stepwell.sandbox import ExecutionPolicy, interpreter_paths
from stepwell.sandbox.environment import PATH
from stepwell.tools import FunctionTool, ToolEffect, tool

_FILES = Path(__file__).parent / "project"
_SUFFIX = ".txt"
"""Of the files here, so that no tool takes the mistake in them for one of Stepwell."""
PROJECT = "project"
OUTSIDE = "outside.txt"
COMMAND_SECONDS = 20.0


class Workspace:
    """The project in its folder, and beside it a file that the agent must not be able to read."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / PROJECT
        self.project.mkdir(parents=True)
        (folder / OUTSIDE).write_text("The agent can't read this.\n", encoding="utf-8")
        self.restore()

    def restore(self) -> None:
        """All files as they were at first."""
        for file in sorted(_FILES.iterdir()):
            target = self.project / file.name.removesuffix(_SUFFIX)
            target.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")

    def execution(self) -> ExecutionPolicy:
        """What commands may do: work in the project with this Python, and nothing else."""
        python = Path(sys.base_prefix, "bin")
        return ExecutionPolicy.in_(
            self.project,
            timeout=COMMAND_SECONDS,
            readable=interpreter_paths(),
            environment={"PATH": f"{python}:{PATH}", "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def tools(self) -> tuple[FunctionTool, ...]:
        """The shop's own tools."""

        @tool(effect=ToolEffect.PURE)
        def count_stock(item: str) -> int:
            """How many of an item the shop has.

            Args:
                item: The name of the item, as the shop writes it.
            """
            with (self.project / "stock.csv").open(encoding="utf-8", newline="") as file:
                counts = {row["item"]: int(row["count"]) for row in csv.DictReader(file)}
            if item not in counts:
                raise LookupError(f"there is no item {item!r}; items: {', '.join(counts)}")
            return counts[item]

        @tool(effect=ToolEffect.IDEMPOTENT)
        def restore_project() -> str:
            """Put all files of the project back to how they were at first."""
            self.restore()
            return "All files are as they were at first."

        return count_stock, restore_project
