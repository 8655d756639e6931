"""Skills written to a directory, and an agent with plain tools that loads them."""

from pathlib import Path
from typing import Any

from stepwell import Agent, AgentState
from stepwell.capabilities.skills import SkillLibrary, UseSkills
from stepwell.testing import ScriptedModel


def read_file(path: str) -> str:
    "Read a file."
    return f"content of {path}"


def write_file(path: str) -> str:
    "Write a file."
    return f"wrote {path}"


def bash(command: str) -> str:
    "Run a command."
    return f"ran {command}"


TOOLS = (read_file, write_file, bash)


def write(root: Path, name: str, front_matter: str = "", body: str = "Do it.") -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name}\ndescription: About {name}.\n{front_matter}\n---\n{body}"
    (root / name / "SKILL.md").write_text(text)


def agent_of(model: ScriptedModel, root: Path, *more: Any, **options: Any) -> Agent:
    use = options.pop("use", None) or UseSkills(SkillLibrary(root))
    return Agent(model, tools=TOOLS, capabilities=[use, *more], **options)


def results(state: AgentState) -> list[str]:
    return [m.tool_result.content for m in state.messages if m.tool_result is not None]
