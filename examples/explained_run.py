"""A run you can read: real tools, a failure, a recovery, and the explained stop.

The model's words are scripted, so this needs no key and no network; the loop, the tools, the error
and the decisions are real. Run it with ``./dev demo``.
"""

import asyncio
from pathlib import Path

from stepwell import Agent, ErrorPolicy, Final, StepCompleted, TextDelta, ToolCompleted, ToolStarted
from stepwell.models import ModelRequest
from stepwell.testing import ScriptedModel, call

PROJECT = Path(__file__).parent.parent


def list_files(folder: str) -> list[str]:
    """List the Markdown files of a folder.

    Args:
        folder: The folder, relative to the project.
    """
    return sorted(path.name for path in (PROJECT / folder).glob("*.md"))


def count_words(path: str) -> int:
    """Count the words of a file.

    Args:
        path: The file, relative to the project.
    """
    return len((PROJECT / path).read_text(encoding="utf-8").split())


def script(request: ModelRequest):
    """What the model says next, judged by the last thing it was told."""
    last = request.messages[-1]
    result = last.tool_result
    if result is None:
        return call("count_words", path="README.rst")
    if result.is_error:
        return call("list_files", folder=".")
    if result.tool_name == "list_files":
        return call("count_words", path="README.md")
    return f"The file is called README.md and has {result.content} words."


async def main() -> None:
    """Run the agent, and print each part as it comes."""
    agent = Agent(
        ScriptedModel(script),
        tools=[list_files, count_words],
        system_prompt="You answer questions about a project's files.",
        error_policy=ErrorPolicy.retry_tool_errors(3),
    )
    question = "How many words does the readme have?"
    print(f"user: {question}\n")
    async for part in agent.stream(question):
        match part:
            case ToolStarted():
                arguments = ", ".join(f"{k}={v!r}" for k, v in part.arguments.items())
                print(f"  tool  {part.tool}({arguments})")
            case ToolCompleted():
                print(f"     -> {part.value if part.success else part.error}")
            case TextDelta():
                print(part.text, end="", flush=True)
            case StepCompleted(state):
                step = state.steps[-1]
                verdict = "goes on" if step.outcome.should_continue else "stops"
                print(f"\n  step {step.number} {verdict}, decided by {step.outcome.resolved_by}\n")
            case Final(state):
                print(state.explain())
                print(f"\nhad errors on the way: {state.had_errors}")
                print(f"tokens: {state.usage.total_tokens}, steps: {state.step_count}")


if __name__ == "__main__":
    asyncio.run(main())
