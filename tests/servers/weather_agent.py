"""The agent that the tests run against the servers: a known provider's model and one tool."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell import Agent, AgentState, Final, StepCompleted, TextDelta, ThinkingDelta, ToolStarted
from stepwell.models.provider import ProviderModel
from stepwell.models.providers import KNOWN_PROVIDERS
from stepwell.state import ErrorInfo
from tests.servers.record import MODELS

PROVIDERS = {
    "chat": "openai-chat",
    "responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
}


def model_at(base_url: str, wire: str, *, read_timeout: float = 20.0) -> ProviderModel:
    """A known provider's model, asked at this address instead of the provider's own."""
    provider = replace(KNOWN_PROVIDERS[PROVIDERS[wire]], read_timeout=read_timeout)
    return provider.model(MODELS[wire], api_key="test-key", base_url=base_url)


class Run(Struct, kw_only=True):
    """What came of a run, and what its stream told on the way."""

    state: AgentState
    texts: list[str]
    """The text of each step, joined; also of a last one that was broken off."""
    chunks: int = 0
    thoughts: str = ""
    calls: list[tuple[str, Any]] = []

    @property
    def errors(self) -> list[ErrorInfo]:
        """All errors of the run, in order."""
        return [error for recorded in self.state.steps for error in recorded.step.errors]

    @property
    def kinds(self) -> list[str | None]:
        """What went wrong in the model turns of the run, in order."""
        return [error.kind for error in self.errors]


class WeatherAgent:
    """An agent with the tool `get_weather`; it notes which cities the tool really looked up."""

    def __init__(self, model: ProviderModel, **options: Any) -> None:
        self.cities: list[str] = []
        self.agent = Agent(model, tools=[self._tool()], **options)

    def _tool(self):
        def get_weather(city: str, unit: str = "celsius") -> str:
            """Looks the weather up."""
            self.cities.append(city)
            return f"3 degrees {unit} in {city}"

        return get_weather

    async def run(self, task: str, *, streamed: bool) -> Run:
        """The run's end, by `agent.stream` or by `agent.run`."""
        if streamed:
            return await collected(self.agent, task)
        state = await self.agent.run(task)
        return Run(state=state, texts=[recorded.step.text for recorded in state.steps])


async def collected(agent: Agent, task: str) -> Run:
    """Everything that `agent.stream` yields, put together."""
    run = Run(state=AgentState.empty(), texts=[""])
    async for part in agent.stream(task):
        match part:
            case TextDelta():
                run.texts[-1] += part.text
                run.chunks += 1
            case ThinkingDelta():
                run.thoughts += part.text
            case ToolStarted():
                run.calls.append((part.tool, part.arguments))
            case StepCompleted():
                run.texts.append("")
            case Final():
                run.state = part.state
                if not run.texts[-1]:  # else a step was broken off and not recorded
                    run.texts.pop()
            case _:
                pass
    return run


def both_ways(wires: Iterable[str]) -> list[tuple[str, bool]]:
    """Each wire format, plain and streamed."""
    return [(wire, streamed) for wire in wires for streamed in (False, True)]
