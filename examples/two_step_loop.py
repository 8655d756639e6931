"""The same two-step tool loop on any models, plain and streamed, with usage, cost and the decision.

    ./dev python examples/two_step_loop.py ollama:qwen3
    ./dev python examples/two_step_loop.py openai:gpt-5.4-mini anthropic gemini openai-chat

Names are those of ``Agent("provider:model")``; keys and addresses come from the environment (see
docs/howto/models.md).
"""

import asyncio
import sys

from stepwell import Agent, ErrorPolicy, Final, StepwellError, TextDelta, ToolCompleted

QUESTION = "What is the weather in Paris? Use the tool."


def get_weather(city: str) -> str:
    """The weather in a city, right now."""
    return f"21 degrees and sunny in {city}"


async def show(name: str) -> bool:
    """Run the loop twice on one model; whether both runs completed."""
    print(f"\n== {name}")
    try:
        agent = Agent(name, tools=[get_weather], error_policy=ErrorPolicy.retry_all(3), max_steps=5)
    except StepwellError as error:
        print(f"   not tried: {error}")
        return False
    plain = await agent.run(QUESTION)
    print(f"   plain     {plain.status} in {plain.step_count} steps: {plain.final_response}")
    used = f"{plain.usage.input_tokens} tokens in, {plain.usage.output_tokens} out"
    print(f"             {used}, {plain.usage.cached_tokens} cached, {plain.cost:.6f} dollars")
    print("   streamed  ", end="")
    async for part in agent.stream(QUESTION):
        if isinstance(part, TextDelta):
            print(part.text, end="", flush=True)
        elif isinstance(part, ToolCompleted):
            print(f"[{part.tool}: {part.value}] ", end="", flush=True)
        elif isinstance(part, Final):
            streamed = part.state
    print()
    for state in (plain, streamed):
        if state.status != "completed":
            print(state.explain())
    return plain.status == streamed.status == "completed"


async def main(names: list[str]) -> int:
    """Show all models; 0 if all completed."""
    if not names or names[0].startswith("-"):
        print(__doc__)
        return 2
    return 0 if all([await show(name) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
