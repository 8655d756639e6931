"""The cost of the core loop, as ratios to a hand-written asyncio tool loop on dicts and a list.

Both sides ask a scripted model that answers at once, parse the arguments of one tool call per step,
call the same async tool and keep the conversation. What is measured is everything else: Stepwell
validates the arguments, evaluates all base criteria before and after each step, keeps the decision
trace and every older state valid. Rounds of the two sides are interleaved; CPU time; medians.
"""

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

from bench.targets import CORE, verdicts
from stepwell import Agent, FinishReason, ModelRequest, ModelResponse, ToolCall, Usage

STEPS = (1, 10, 50, 200, 1000)
CONCURRENT_RUNS = 5_000
BASELINE_IMPORT = "import asyncio, dataclasses, json, enum, datetime"
HEAVY_MODULES = {
    *("anthropic", "fastapi", "google", "httpx", "httpx2", "openai", "requests", "starlette"),
    *("aiosqlite", "psycopg", "sqlalchemy", "uvicorn", "pydantic", "pydantic_core"),
}


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# The hand-written side


class DictModel:
    """Calls the tool in each of ``steps`` turns, then answers."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.turn = 0

    async def __call__(self, _messages: list[dict[str, Any]]) -> dict[str, Any]:
        self.turn += 1
        if self.turn > self.steps:
            return {"role": "assistant", "content": "done", "usage": 15}
        function = {"name": "add", "arguments": f'{{"a": {self.turn}, "b": 2}}'}
        call = {"id": f"call_{self.turn}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call], "usage": 15}


async def hand_written(steps: int) -> None:
    """What one would write in an afternoon: no validation, no limits but one, no record."""
    model = DictModel(steps)
    tools = {"add": add}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Add."}]
    tokens = 0
    for _ in range(steps + 1):
        response = await model(messages)
        tokens += response["usage"]
        messages.append(response)
        calls = response.get("tool_calls")
        if not calls:
            break
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            result = await tools[call["function"]["name"]](**arguments)
            content = json.dumps(result)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    if len(messages) != 2 * steps + 2:
        raise AssertionError("the hand-written loop did not take all steps")


# The Stepwell side


class JsonModel:
    """The same turns through the model protocol; it parses the JSON as an adapter does."""

    name = "bench"

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.turn = 0

    async def respond(self, _request: ModelRequest) -> ModelResponse:
        self.turn += 1
        usage = Usage(input_tokens=10, output_tokens=5)
        if self.turn > self.steps:
            return ModelResponse(text="done", finish_reason=FinishReason.STOP, usage=usage)
        arguments = json.loads(f'{{"a": {self.turn}, "b": 2}}')
        call = ToolCall(id=f"call_{self.turn}", name="add", arguments=arguments)
        return ModelResponse(tool_calls=(call,), finish_reason=FinishReason.TOOL_CALLS, usage=usage)


def build_agent(steps: int) -> Agent:
    """The full default agent; only the limits are raised so that they don't end the run."""
    return Agent(JsonModel(steps), tools=[add], max_steps=steps + 2, max_tokens=10**9)


async def with_stepwell(steps: int, agent: Agent) -> None:
    state = await agent.run("Add.")
    if state.step_count != steps + 1 or state.final_response != "done":
        raise AssertionError(f"Stepwell did not take all steps:\n{state.explain()}")


# Measuring


async def cpu_seconds(run: Callable[[], Awaitable[Any]], times: int) -> float:
    gc.collect()
    started = time.process_time()
    for _ in range(times):
        await run()
    return (time.process_time() - started) / times


async def one_round(steps: int) -> tuple[float, float]:
    """CPU seconds per step of both sides, measured one right after the other."""
    times = max(1, 2000 // (steps + 1))
    agents = iter([build_agent(steps) for _ in range(times)])
    hand = await cpu_seconds(lambda: hand_written(steps), times)
    ours = await cpu_seconds(lambda: with_stepwell(steps, next(agents)), times)
    return hand / (steps + 1), ours / (steps + 1)


async def per_step(rounds: int) -> dict[str, float]:
    """Medians over rounds that each measure all lengths, so that a slow moment hits all alike."""
    samples: dict[int, list[tuple[float, float]]] = {steps: [] for steps in STEPS}
    for done in range(rounds):
        print(f"round {done + 1} of {rounds} ...", file=sys.stderr)
        for steps in STEPS:
            samples[steps].append(await one_round(steps))
    figures: dict[str, float] = {}
    for steps, pairs in samples.items():
        figures[f"hand_us_{steps}"] = round(statistics.median(h for h, _ in pairs) * 1e6, 2)
        figures[f"stepwell_us_{steps}"] = round(statistics.median(o for _, o in pairs) * 1e6, 2)
        figures[f"ratio_{steps}"] = round(statistics.median(o / h for h, o in pairs), 2)
    growth = [late[1] / early[1] for early, late in zip(samples[10], samples[1000], strict=True)]
    figures["growth_1000_over_10"] = round(statistics.median(growth), 3)
    return figures


async def concurrent(rounds: int, runs: int = CONCURRENT_RUNS, steps: int = 10) -> float:
    """The ratio of CPU time for many runs at once, all of whose states live until the last ends."""
    ratios: list[float] = []
    for _ in range(rounds):
        agents = [build_agent(steps) for _ in range(runs)]
        hand = await cpu_seconds(
            lambda: asyncio.gather(*(hand_written(steps) for _ in range(runs))), 1
        )
        ours = await cpu_seconds(
            lambda: asyncio.gather(*(with_stepwell(steps, agent) for agent in agents)),  # noqa: B023
            1,
        )
        ratios.append(ours / hand)
    return statistics.median(ratios)


def construction(rounds: int) -> float:
    """Median CPU microseconds to build an agent with one tool, its schema included."""
    samples: list[float] = []
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(20):
            build_agent(10)
        samples.append((time.process_time() - started) / 20 * 1e6)
    return statistics.median(samples)


def import_seconds(code: str) -> float:
    """CPU seconds of an import in a fresh interpreter."""
    probe = f"import time; t = time.process_time(); {code}; print(time.process_time() - t)"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    return float(done.stdout)


def imports(rounds: int) -> tuple[float, float]:
    """Ratios to the baseline of ``import stepwell`` and of the names most programs want."""
    bare: list[float] = []
    used: list[float] = []
    for _ in range(rounds):
        baseline = import_seconds(BASELINE_IMPORT)
        bare.append(import_seconds("import stepwell") / baseline)
        used.append(import_seconds("from stepwell import Agent, AgentState, tool") / baseline)
    return statistics.median(bare), statistics.median(used)


HAND_PROCESS = """
import asyncio, json

async def add(a, b):
    return a + b

async def model(messages):
    if len(messages) > 1:
        return {"role": "assistant", "content": "done", "usage": 15}
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call], "usage": 15}

async def main():
    messages = [{"role": "user", "content": "Add."}]
    while True:
        response = await model(messages)
        messages.append(response)
        if not response.get("tool_calls"):
            return response["content"]
        for call in response["tool_calls"]:
            result = await add(**json.loads(call["function"]["arguments"]))
            content = json.dumps(result)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

assert asyncio.run(main()) == "done"
"""
STEPWELL_PROCESS = """
import asyncio, json
from stepwell import Agent, FinishReason, ModelResponse, ToolCall, Usage

async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

class Model:
    name = "bench"

    async def respond(self, request):
        usage = Usage(input_tokens=10, output_tokens=5)
        if len(request.messages) > 1:
            return ModelResponse(text="done", finish_reason=FinishReason.STOP, usage=usage)
        call = ToolCall(id="call_1", name="add", arguments=json.loads('{"a": 1, "b": 2}'))
        return ModelResponse(tool_calls=(call,), finish_reason=FinishReason.TOOL_CALLS, usage=usage)

assert asyncio.run(Agent(Model(), tools=[add]).run("Add.")).final_response == "done"
"""


def process_seconds(code: str) -> float:
    """CPU seconds of a whole fresh process that runs this code."""
    probe = f"{code}\nimport time; print(time.process_time())"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    return float(done.stdout)


def first_answer(rounds: int) -> tuple[float, float]:
    """The CPU milliseconds of both sides from the start of a process to its first answer."""
    pairs = [
        (process_seconds(HAND_PROCESS), process_seconds(STEPWELL_PROCESS)) for _ in range(rounds)
    ]
    return statistics.median(h for h, _ in pairs) * 1e3, statistics.median(
        o for _, o in pairs
    ) * 1e3


def calls_per_step(steps: int = 200) -> tuple[float, float]:
    """Python calls per step of both sides, counted, so that no other load disturbs them."""
    agent = build_agent(steps)
    hand = asyncio.run(counted(lambda: hand_written(steps)))
    ours = asyncio.run(counted(lambda: with_stepwell(steps, agent)))
    return hand / (steps + 1), ours / (steps + 1)


async def counted(run: Callable[[], Awaitable[Any]]) -> int:
    """How often Python code is entered during a run, asyncio's own included."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await run()
    finally:
        sys.setprofile(None)
    return calls


def loaded_heavy_modules() -> list[str]:
    """Heavy packages that ``import stepwell`` loads."""
    probe = "import sys, stepwell; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    return sorted(set(done.stdout.split()) & HEAVY_MODULES)


async def memory_per_step(steps: int) -> float:
    """Bytes that a step adds, with the state after every step kept."""
    agent = build_agent(steps)
    await with_stepwell(1, build_agent(1))
    gc.collect()
    tracemalloc.start()
    kept = [state async for state in agent.iterator("Add.")]
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size / len(kept)


def measure(rounds: int) -> dict[str, Any]:
    figures: dict[str, Any] = {**asyncio.run(per_step(rounds))}
    print("measuring concurrency, construction, memory, imports ...", file=sys.stderr)
    figures["concurrent_ratio"] = round(asyncio.run(concurrent(min(3, rounds))), 2)
    hand_calls, our_calls = calls_per_step()
    figures["hand_calls_per_step"] = round(hand_calls, 1)
    figures["stepwell_calls_per_step"] = round(our_calls, 1)
    figures["construct_us"] = round(construction(rounds), 1)
    small, large = asyncio.run(memory_per_step(100)), asyncio.run(memory_per_step(1000))
    figures["memory_bytes_per_step_100"] = round(small)
    figures["memory_bytes_per_step_1000"] = round(large)
    figures["memory_growth_1000_over_100"] = round(large / small, 3)
    bare, used = imports(max(5, rounds // 2))
    figures["import_ratio"] = round(bare, 2)
    figures["import_agent_ratio"] = round(used, 2)
    hand_ms, our_ms = first_answer(max(5, rounds // 2))
    figures["hand_first_answer_ms"] = round(hand_ms, 1)
    figures["stepwell_first_answer_ms"] = round(our_ms, 1)
    figures["import_to_first_answer_ratio"] = round(our_ms / hand_ms, 2)
    figures["loaded_heavy_modules"] = loaded_heavy_modules()
    figures["targets"] = verdicts(figures, CORE)
    return figures


def table(figures: dict[str, Any]) -> str:
    lines = ["steps   hand-written us/step   stepwell us/step   ratio"]
    lines += [
        f"{steps:>5}   {figures[f'hand_us_{steps}']:>20}   {figures[f'stepwell_us_{steps}']:>16}   "
        f"{figures[f'ratio_{steps}']:>5}"
        for steps in STEPS
    ]
    rest = {
        k: v for k, v in figures.items() if not k.startswith(("hand_us", "stepwell_us", "ratio"))
    }
    return "\n".join([*lines, "", *(f"{name:<30} {value}" for name, value in rest.items())])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench core", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    options = parser.parse_args(arguments)
    figures = measure(options.rounds)
    print(table(figures))
    if options.json:
        print(json.dumps(figures))
    return 0
